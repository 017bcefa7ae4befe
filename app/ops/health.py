"""Whether the process answers, and whether it can do its work."""

import asyncio
import time

from anyio import CapacityLimiter, move_on_after, to_thread
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel
from sqlalchemy import Engine

from app import metrics
from app.engines import make_engine
from app.ops.all_nodes import together
from app.ops.checks import Check, all_hold, cheap_checks
from app.settings import Settings

router = APIRouter(tags=["operations"])

PATIENCE_SECONDS = 1


class Alive(BaseModel):
    status: str


class CheckResult(BaseModel):
    name: str
    ok: bool
    found: str
    wanted: str


class Readiness(BaseModel):
    status: str
    checks: list[CheckResult]


class Probe:
    """Looks at the database over a connection of its own: a full pool is no dead database."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._engines = [
            make_engine(settings, url, pool_size=1, patience_seconds=PATIENCE_SECONDS)
            for url in settings.urls
        ]
        self._one_at_a_time = {engine: CapacityLimiter(1) for engine in self._engines}

    async def look(self) -> list[Check]:
        """The cheap checks; a database that has not answered after a second is not reachable."""
        looks = await asyncio.gather(*(self._look_at(engine) for engine in self._engines))
        return together(looks, self._settings)

    async def _look_at(self, engine: Engine) -> list[Check]:
        with move_on_after(PATIENCE_SECONDS):
            return await to_thread.run_sync(
                _look,
                engine,
                self._settings,
                abandon_on_cancel=True,
                limiter=self._one_at_a_time[engine],
            )
        return [Check("reachable", ok=False, found=f"no answer in {PATIENCE_SECONDS} s", wanted="yes")]

    def close(self) -> None:
        for engine in self._engines:
            engine.dispose()


def _look(engine: Engine, settings: Settings) -> list[Check]:
    """What does not hold is looked at again, where there is time: the connection may have died meanwhile.

    A pool hands it out as if it were alive, and of its death each check would tell something else.
    """
    began_at = time.monotonic()
    checks = cheap_checks(engine, settings)
    if all_hold(checks) or time.monotonic() > began_at + PATIENCE_SECONDS:
        return checks
    return cheap_checks(engine, settings)


@router.get("/livez", operation_id="isAlive", summary="Does the process answer")
async def is_alive() -> Alive:
    """Never touches the database."""
    return Alive(status="alive")


@router.get(
    "/readyz",
    operation_id="isReady",
    summary="Can the service do its work",
    responses={
        503: {"model": Readiness, "description": "Not ready; `checks` says why, or it is shutting down"}
    },
)
async def is_ready(request: Request, response: Response) -> Readiness:
    """Database reachable (one fit node will do), isolation level, table engines, migrations at head."""
    if getattr(request.state, "is_stopping", False):  # app.processes.Server
        metrics.READY.set(0)
        response.status_code = 503
        return Readiness(status="shutting down", checks=[])
    probe: Probe = request.app.state.probe
    checks = await probe.look()
    ready = all_hold(checks)
    metrics.READY.set(ready)
    if not ready:
        response.status_code = 503
    results = [CheckResult.model_validate(check, from_attributes=True) for check in checks]
    return Readiness(status="ready" if ready else "not ready", checks=results)
