"""What settings say of who stands before the service: proxies, and the pages that may call it."""

import ipaddress
import re
from typing import Annotated

from pydantic import AfterValidator

# As a browser sends it (RFC 6454, section 6.2): no path, no slash at the end.
_ORIGIN = re.compile(r"https?://(?:[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")


def _networks(value: str) -> str:
    try:
        return ",".join(str(ipaddress.ip_network(part.strip())) for part in value.split(","))
    except ValueError as error:
        raise ValueError(f"must be addresses or networks, separated by commas: {error}") from None


def _origins(value: str) -> str:
    origins = [part.strip() for part in value.split(",")]
    if origins != ["*"]:
        for origin in origins:
            if not _ORIGIN.fullmatch(origin):
                raise ValueError("must be `*`, or origins such as https://app.example, separated by commas")
    return ",".join(origins)


ProxyNetworks = Annotated[str, AfterValidator(_networks)]
Origins = Annotated[str, AfterValidator(_origins)]
