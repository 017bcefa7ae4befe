"""The application: routers, error handlers, lifespan."""

import hashlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anyio import to_thread
from fastapi import FastAPI

from app import __version__, problems
from app.db import Database
from app.devices.change_routes import router as device_changes
from app.devices.routes import router as devices
from app.embedded import resolve_root_key
from app.events.routes import router as events
from app.middleware import BodyLimit, HeadAsGet, RequestIds
from app.migrations import MigrationFailed, migrate_embedded
from app.openapi import describe
from app.ops.explorer import ASSETS, assets
from app.ops.explorer import router as explorer
from app.ops.health import Probe
from app.ops.health import router as health
from app.quotas.routes import router as quotas
from app.settings import BadSettings, Settings, load_settings
from app.users.routes import router as users
from app.webhooks.delivery_routes import router as webhook_deliveries
from app.webhooks.routes import router as webhook_endpoints
from app.worker import embedded as embedded_worker


def create_app(settings: Settings) -> FastAPI:
    """The service. Raises BadSettings where it must not start."""
    app = FastAPI(
        title="Cupo",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
    )
    app.state.settings = settings
    app.state.root_key_digest = hashlib.sha256(resolve_root_key(settings).encode()).digest()
    for router in (devices, device_changes, quotas, events, users, webhook_endpoints, webhook_deliveries):
        app.include_router(router)
    for router in (health, explorer):
        app.include_router(router)
    app.mount(ASSETS, assets)
    app.add_middleware(HeadAsGet)
    app.add_middleware(BodyLimit)
    app.add_middleware(RequestIds)  # the last one added is the outermost
    problems.install(app)
    describe(app)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    app.state.database = Database(settings)
    await to_thread.run_sync(app.state.database.open_connections)
    app.state.probe = Probe(settings)
    try:
        async with embedded_worker(settings):
            yield
    finally:
        app.state.probe.close()
        app.state.database.close()


def __getattr__(name: str) -> Any:
    """`app`, made when a server asks for it (`uvicorn app.main:app`): importing reads no environment."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        settings = load_settings()
        migrate_embedded(settings)
        return create_app(settings)
    except (BadSettings, MigrationFailed) as reason:
        sys.exit(f"cupo: {reason}")
