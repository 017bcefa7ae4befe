"""`cupo` with every logger at DEBUG, and a fault in the statement that reads one device."""

import logging
from typing import Any, NoReturn

from sqlalchemy import text

from app import logs, processes
from app.cli import main
from app.db import Tx
from app.devices import routes
from app.settings import Settings


def _read_wrongly(tx: Tx, user_id: int, device_id: str) -> NoReturn:
    tx.execute(text("SELEC :user_id, :device_id"), {"user_id": user_id, "device_id": device_id})
    raise AssertionError


def _everything(settings: Settings) -> dict[str, Any]:
    return {**logs.configuration(settings), "root": {"handlers": ["lines"], "level": "DEBUG"}}


if __name__ == "__main__":
    processes.configuration = _everything  # type: ignore[attr-defined] # mypy: not exported from there
    # On purpose it logs the rows that it reads.
    logging.getLogger("sqlalchemy").setLevel(logging.WARNING)
    routes.service.read_device = _read_wrongly  # type: ignore[attr-defined] # mypy: not exported from there
    main()
