"""The application: routers, error handlers, lifespan."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anyio import to_thread
from fastapi import FastAPI
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE

from app import __version__, problems, tracing
from app.auth.known_keys import KnownKeys
from app.auth.user_tokens import keys_kept_fresh, user_tokens
from app.db import Database
from app.devices.change_routes import router as device_changes
from app.devices.fast_path import FastPath
from app.devices.groups import Groups
from app.devices.routes import router as devices
from app.embedded import resolve_root_key
from app.events.routes import router as events
from app.keys.routes import router as keys
from app.keys.token import digest_of
from app.middleware import AnswerHeaders, BodyLimit, HeadAsGet, ListedOrigins, Refusals
from app.migrations import MigrationFailed, migrate_embedded
from app.openapi import describe
from app.ops.explorer import ASSETS, assets
from app.ops.explorer import router as explorer
from app.ops.first_look import warn_unless_ready
from app.ops.health import Probe
from app.ops.health import router as health
from app.ops.requests import RecordedRequests
from app.ops.scrape import router as scrape
from app.quotas.routes import router as quotas
from app.settings import BadSettings, Settings, load_settings
from app.stopping import AnswerWhenCancelled
from app.users.routes import router as users
from app.webhooks.delivery_routes import router as webhook_deliveries
from app.webhooks.routes import router as webhook_endpoints
from app.worker import embedded as embedded_worker


class Service(FastAPI):
    """What stands before the routes, Starlette's answer to a bug included: it too needs its headers."""

    def build_middleware_stack(self) -> ASGIApp:
        stack: ASGIApp = FastPath(Refusals(super().build_middleware_stack()))
        stack = ServerErrorMiddleware(stack, problems.answer_bug)
        origins = self.state.settings.cors_origins
        if origins is not None:
            stack = ListedOrigins(stack, origins.split(","))
        return AnswerHeaders(RecordedRequests(AnswerWhenCancelled(stack)))


def create_app(settings: Settings) -> FastAPI:
    """The service. Raises BadSettings where it must not start."""
    tracing.start(settings)
    app = Service(
        title="Cupo",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # app.tracing, app.metrics, app.logs
    )
    app.state.settings = settings
    root_key = resolve_root_key(settings)
    app.state.root_key_digest = None if root_key is None else digest_of(root_key)
    app.state.user_tokens = user_tokens(settings)
    for router in (devices, device_changes, quotas, events, users, keys):
        app.include_router(router)
    for router in (webhook_endpoints, webhook_deliveries, health, scrape, explorer):
        app.include_router(router)
    app.mount(ASSETS, assets)
    app.add_middleware(HeadAsGet)
    app.add_middleware(BodyLimit)  # the last one added is the outermost
    problems.install(app)
    describe(app)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    app.state.database = Database(settings)
    await to_thread.run_sync(app.state.database.open_connections)
    app.state.groups = Groups(app.state.database, settings)
    app.state.known_keys = KnownKeys(app.state.database)
    app.state.probe = Probe(settings)
    await warn_unless_ready(app.state.probe)
    try:
        async with keys_kept_fresh(app.state.user_tokens), embedded_worker(settings):
            yield
    finally:
        app.state.probe.close()
        await app.state.known_keys.close()
        app.state.database.close()
        tracing.stop()


def __getattr__(name: str) -> Any:
    """`app`, made when a server asks for it (`uvicorn app.main:app`): importing reads no environment."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        settings = load_settings()
        migrate_embedded(settings)
        return create_app(settings)
    except (BadSettings, MigrationFailed) as reason:
        print(f"cupo: {reason}", file=sys.stderr)  # noqa: T201 - there is no log yet
        sys.exit(STARTUP_FAILURE)  # by which uvicorn knows that no other process would start either
