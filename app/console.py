"""What all commands have in common: settings from the environment, and an end that is told in one line."""

import sys
from typing import Any, NoReturn

import typer

from app.settings import BadSettings, Settings, load_settings


def fail(message: object, status: int = 1) -> NoReturn:
    """End with this status, and with the message on the error output."""
    for line in str(message).splitlines():
        typer.echo(f"cupo: {line}", err=True)
    sys.exit(status)


def settings_or_fail(**overrides: Any) -> Settings:
    """The settings, where an override that is None leaves them as they are."""
    try:
        return load_settings(**{name: value for name, value in overrides.items() if value is not None})
    except BadSettings as bad:
        fail(bad)
