"""What the routes under `/v1` have in common: their database, their path parameters, their JSON bodies."""

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal, TypedDict

from fastapi import Depends, Path, Request, Response
from fastapi.routing import APIRoute
from pydantic import AfterValidator, StringConstraints

from app.auth.principal import authenticate
from app.db import Database
from app.devices.schemas import DeviceId
from app.errors import InvalidRequest, UnsupportedMediaType
from app.settings import Settings

LARGEST_USER_ID = 2**64 - 1


def _in_range(digits: str) -> int:
    if int(digits) > LARGEST_USER_ID:
        raise ValueError(f"is above {LARGEST_USER_ID}")
    return int(digits)


UserIdInPath = Annotated[
    str,
    StringConstraints(pattern=r"^[1-9][0-9]{0,19}$"),
    AfterValidator(_in_range),
    Path(description=f"1 … {LARGEST_USER_ID}, in decimal digits.", examples=["42"]),
]
DeviceIdInPath = Annotated[DeviceId, Path(examples=["3f6c1a50-phone"])]


async def _database(request: Request) -> Database:
    database: Database = request.app.state.database
    return database


async def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


DatabaseOfApp = Annotated[Database, Depends(_database)]
SettingsOfApp = Annotated[Settings, Depends(_settings)]


@contextmanager
def refuse(location: Literal["path", "query", "header"], name: str) -> Iterator[None]:
    """A ValueError about the parameter `name` becomes InvalidRequest (422)."""
    try:
        yield
    except ValueError as error:
        raise InvalidRequest([{"detail": str(error), "location": location, "pointer": f"#/{name}"}]) from None


class JsonRoute(APIRoute):
    """A route whose body, where it has one, must say that it is JSON (415)."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def handle_json(request: Request) -> Response:
            media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if media_type != "application/json" and not media_type.endswith("+json"):
                raise UnsupportedMediaType
            return await handle(request)

        return handle_json


class RouterArguments(TypedDict):
    route_class: type[APIRoute]
    dependencies: list[Any]


# How each router under /v1 is made.
V1 = RouterArguments(route_class=JsonRoute, dependencies=[Depends(authenticate)])
