"""What the routes under `/v1` have in common: their database, their path parameters, their JSON bodies."""

import json
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any, Literal, NoReturn, TypedDict

from fastapi import Depends, Header, Path, Query, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import AfterValidator, WithJsonSchema

from app.auth.known_keys import KnownKeys
from app.auth.principal import OWN_USER, Principal, authenticate, authorise, bearer
from app.auth.scopes import ACCESS
from app.db import Database
from app.errors import FieldError, InvalidRequest, MalformedJson, UnsupportedMediaType
from app.etags import IF_MATCH_PATTERN, Precondition, parse_if_match
from app.origin import Origin
from app.problems import pointer_to
from app.settings import Settings
from app.texts import MOST_USER_ID, USER_ID_PATTERN, DeviceId, user_id


def _named_user(text: str) -> int:
    if text == OWN_USER:  # a user's token has had it replaced by their id
        raise ValueError(f"must be a user's id: only a user's own token has a user that is {OWN_USER}")
    return user_id(text)


UserIdInPath = Annotated[
    str,
    AfterValidator(_named_user),
    WithJsonSchema({"type": "string", "pattern": USER_ID_PATTERN, "examples": ["42"]}),
    Path(description=f"1 … {MOST_USER_ID}, in decimal digits."),
]
DeviceIdInPath = Annotated[DeviceId, Path(description="As it was registered.")]


async def _database(request: Request) -> Database:
    database: Database = request.app.state.database
    return database


async def _database_of_user(request: Request) -> Database:
    database: Database = request.app.state.database
    # Not by UserIdInPath: FastAPI would check the parameter a second time, at each call.
    with suppress(ValueError):  # by which the route itself refuses the call
        return database.of_user(user_id(request.path_params["user_id"]))
    return database


async def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


async def _origin(request: Request) -> Origin:
    return Origin(request.state.principal.actor, request.state.request_id)


async def _caller(request: Request) -> Principal:
    caller: Principal = request.state.principal
    return caller


async def _known_keys(request: Request) -> KnownKeys:
    known: KnownKeys = request.app.state.known_keys
    return known


DatabaseOfApp = Annotated[Database, Depends(_database)]
DatabaseOfUser = Annotated[Database, Depends(_database_of_user)]
SettingsOfApp = Annotated[Settings, Depends(_settings)]
OriginOfCall = Annotated[Origin, Depends(_origin)]
CallerOfCall = Annotated[Principal, Depends(_caller)]
KnownKeysOfApp = Annotated[KnownKeys, Depends(_known_keys)]
IDEMPOTENCY_KEY = "idempotency-key"
PageSize = Annotated[int, Query(ge=1, le=100, description="Entries of a page.")]
Cursor = Annotated[
    str | None,
    Query(
        max_length=512,
        description="`next_cursor` of the page before.",
        json_schema_extra={"format": "cursor"},
    ),
]
IfMatch = Annotated[
    str | None,
    Header(
        description="Only at one of these ETags; `*` is any.",
        examples=["*", '"1"'],
        # Told, not checked here: a pattern's own complaint would name the pattern, not what is meant.
        json_schema_extra={"format": "entity-tags", "pattern": IF_MATCH_PATTERN},
    ),
]


@contextmanager
def refuse(location: Literal["path", "query", "header"], name: str) -> Iterator[None]:
    """A ValueError about the parameter `name` becomes InvalidRequest (422)."""
    try:
        yield
    except ValueError as error:
        raise InvalidRequest(
            [{"detail": str(error), "location": location, "pointer": pointer_to(name)}]
        ) from None


def parsed_if_match(header: str | None) -> Precondition:
    with refuse("header", "if-match"):
        return parse_if_match(header)


class JsonRequest(Request):
    """A request whose body is I-JSON."""

    async def json(self) -> Any:
        return parse_json(await self.body())


def parse_json(body: bytes) -> Any:
    """The value of a body that is JSON as RFC 7493 (I-JSON) has it, so that no two readers can differ on it.

    MalformedJson (400) where it is not, also where Python's parser alone would be lenient or fail.
    """
    try:
        return json.loads(
            body.decode("utf-8-sig"), object_pairs_hook=_object, parse_constant=_refuse_constant
        )
    except json.JSONDecodeError as error:
        raise MalformedJson(
            f"The body is not JSON: {error.msg} at line {error.lineno} column {error.colno}."
        ) from None
    except UnicodeDecodeError as error:
        raise MalformedJson(f"The body is not UTF-8: {error.reason} at byte {error.start}.") from None
    except RecursionError:
        raise MalformedJson("The body is nested too deeply.") from None
    except ValueError:
        raise MalformedJson("The body has a number of too many digits.") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise MalformedJson("The body has an object in which a key occurs twice.")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise MalformedJson(f"The body is not JSON: {name} is no JSON value.")


class GuardedRoute(APIRoute):
    """A route that looks at its caller first (401, 403), then at what FastAPI would pass over in silence.

    That is a parameter which is none of the call's or is there twice (422), an Idempotency-Key where no
    answer is kept (422), a body where the call has none (422), and one that does not say that it is JSON
    (415). Not a dependency: FastAPI reads and parses the body before it asks any.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        access = ACCESS[self.operation_id or self.name]
        query = frozenset(_aliases(self.dependant, "query_params"))
        headers = frozenset(_aliases(self.dependant, "header_params"))

        async def handle_guarded(received: Request) -> Response:
            request = JsonRequest(received.scope, received.receive)
            request.state.principal = await authenticate(request)
            authorise(request.state.principal, access, request)
            _refuse_strays(request, query, headers)
            if self.body_field is None:
                await _refuse_body(request)
            else:
                _require_json(request)
            return await handle(request)

        return handle_guarded


def _aliases(dependant: Dependant, kind: Literal["query_params", "header_params"]) -> Iterator[str]:
    yield from (field.alias for field in getattr(dependant, kind))
    for asked in dependant.dependencies:
        yield from _aliases(asked, kind)


def _refuse_strays(request: Request, query: frozenset[str], headers: frozenset[str]) -> None:
    """A typo would leave a default in force unseen, and of two values one would be lost."""
    asked = (name for name, _ in request.query_params.multi_items())
    read = headers | {"content-type"}
    sent = (name for name in request.headers if name in read)
    strays = [*_strays("query", asked, query), *_strays("header", sent, read)]
    # Whoever sends it relies on one effect. The other methods have that by themselves.
    if request.method == "POST" and IDEMPOTENCY_KEY in request.headers and IDEMPOTENCY_KEY not in headers:
        strays.append(_stray("header", IDEMPOTENCY_KEY, "is no header of this call"))
    if strays:
        raise InvalidRequest(strays)


def _strays(
    location: Literal["query", "header"], names: Iterable[str], known: frozenset[str]
) -> Iterator[FieldError]:
    for name, times in Counter(names).items():
        if name not in known:
            yield _stray(location, name, "is no parameter of this call")
        elif times > 1:
            yield _stray(location, name, "is there more than once")


def _stray(location: Literal["query", "header"], name: str, detail: str) -> FieldError:
    return {"detail": detail, "location": location, "pointer": pointer_to(name)}


def _require_json(request: Request) -> None:
    media_type, *parameters = request.headers.get("content-type", "").lower().split(";")
    if not re.fullmatch(r"application/(?:json|[\w.-]+\+json)", media_type.strip()):
        raise UnsupportedMediaType
    # JSON has no such parameter and is UTF-8 always, but whoever names another one sends other bytes.
    for name, _, value in (one.partition("=") for one in parameters):
        if name.strip() == "charset" and value.strip().strip('"') not in {"utf-8", "utf8"}:
            raise UnsupportedMediaType


async def _refuse_body(request: Request) -> None:
    """A DELETE whose body says {"block": true} would be answered as if it had blocked."""
    # Some clients send an empty object with each POST.
    if (await request.body()).strip() not in {b"", b"{}"}:
        raise InvalidRequest(
            [{"detail": "this call takes no body", "location": "body", "pointer": pointer_to()}]
        )


class RouterArguments(TypedDict):
    route_class: type[APIRoute]
    dependencies: list[Any]


# How each router under /v1 is made. The dependency only has OpenAPI say what GuardedRoute asks for.
V1 = RouterArguments(route_class=GuardedRoute, dependencies=[Depends(bearer)])
