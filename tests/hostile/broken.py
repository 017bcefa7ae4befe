"""The service with a fault in it, which shows a secret: what the log and the answer then say is tested."""

from typing import NoReturn

from app.devices import routes
from app.main import create_app
from app.settings import load_settings


def _fail(*_: object) -> NoReturn:
    raise RuntimeError("a fault of the service")


routes.service.list_devices = _fail  # type: ignore[attr-defined] # mypy: not exported from there

app = create_app(load_settings())
