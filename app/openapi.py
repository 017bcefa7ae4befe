"""The OpenAPI document, complete enough to generate a client from."""

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from app.problems import EXAMPLE_REQUEST_ID, Problem

DESCRIPTION = """
Registers devices per user under a limit, and never lets a user pass it, whatever arrives at once.

Everything under `/v1` needs `Authorization: Bearer <key>`. Errors are `application/problem+json` (RFC 9457);
their `code` is stable. After a 503 it is safe to repeat the call.
""".strip()

TAGS = [
    {"name": "devices", "description": "Register, list, read, change, move and revoke a user's devices."},
    {"name": "events", "description": "What happened to a user's devices and quota, and who asked for it."},
    {"name": "users", "description": "A user as a whole."},
    {"name": "quotas", "description": "How many devices a user may have and has."},
    {"name": "operations", "description": "Health, for load balancers and whoever is on call."},
]


REQUEST_ID = {
    "description": "The request's own X-Request-ID if that is a sane token, else one that was made.",
    "schema": {"type": "string"},
    "example": EXAMPLE_REQUEST_ID,
}


def describe(app: FastAPI) -> None:
    """Have `/openapi.json` answer with the completed document, made once."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign] # FastAPI's documented way to extend the document


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        description=DESCRIPTION,
        routes=app.routes,
        tags=TAGS,
        servers=[{"url": "/"}],
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
    )
    schema = TypeAdapter(Problem).json_schema(ref_template="#/components/schemas/{model}")
    schemas = document["components"]["schemas"]
    schemas.update(schema.pop("$defs", {}))
    schemas["Problem"] = schema
    document["components"]["headers"] = {"X-Request-ID": REQUEST_ID}
    for response in _responses(document):
        response.setdefault("headers", {})["X-Request-ID"] = {"$ref": "#/components/headers/X-Request-ID"}
    return document


def _responses(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for operations in document["paths"].values():
        for operation in operations.values():
            yield from operation["responses"].values()
