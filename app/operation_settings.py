"""What the settings of watching the service may be."""

import datetime
from importlib.util import find_spec
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime


def _in_utc(instant: datetime.datetime) -> datetime.datetime:
    return instant.astimezone(datetime.UTC)


def _possible(traces: Literal["off", "on"]) -> Literal["off", "on"]:
    try:
        found = traces == "off" or find_spec("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ModuleNotFoundError:
        found = None
    if not found:
        raise ValueError("needs what is not installed: pip install 'cupo[otel]'")
    return traces


Instant = Annotated[AwareDatetime, AfterValidator(_in_utc)]
Traces = Annotated[Literal["off", "on"], AfterValidator(_possible)]
