"""What metrics, log lines and traces tell of registrations that share a transaction."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import REGISTRY, generate_latest
from sqlalchemy import Engine

from app import tracing
from app.devices.service import Registered
from app.errors import DeviceLimitReached
from app.recording import Call, current_calls, on_behalf_of
from app.spans import OpenTelemetry
from tests.devices.scenes import LOCKS, Result, Scene, all_of, registered
from tests.lifecycle.rows import put_devices
from tests.proxy import Fate
from tests.scraping import Metrics
from tests.test_ending import locked

pytestmark = [pytest.mark.locking, pytest.mark.usefixtures("long_turns")]

NewUser = Callable[[], int]
# The call that the group waits for is counted beside it.
THE_FIRST = 1


@pytest.fixture
def counted() -> Callable[[], Metrics]:
    """What was counted in this process since it was last asked for, or since the test began."""

    def look() -> Metrics:
        return Metrics.of(generate_latest(REGISTRY).decode())

    before = look()
    return lambda: look().since(before)


def recorded_together(scene: Scene, *calls: tuple[int, str]) -> tuple[list[Result], list[Call]]:
    """A group of calls, and what is recorded of each for its line of the log."""
    records = [Call(f"of-{user}-{device}") for user, device in calls]

    async def meet() -> list[Result]:
        async with scene.while_another_is_served():
            under_way = []
            for (user, device), record in zip(calls, records, strict=True):
                with on_behalf_of(record):
                    under_way.append(scene.call(user, device))
        return await all_of(under_way)

    return asyncio.run(meet()), records


def test_a_group_is_two_transactions_and_one_wait_for_locks(
    scene: Scene, new_user: NewUser, counted: Callable[[], Metrics]
) -> None:
    results, records = recorded_together(scene, *((new_user(), "a") for _ in range(5)))
    registered(results)
    found = counted()
    assert found.value("cupo_registration_group_size_count") == 1
    assert found.value("cupo_registration_group_size_sum") == 5
    assert found.value("cupo_registration_group_left_total") == 0
    # The first one made its user's lock row in a transaction of its own.
    assert found.by("cupo_transactions_total", "outcome") == {("committed",): 2 * THE_FIRST + 2}
    assert found.value("cupo_lock_wait_seconds_count") == 2 * THE_FIRST + 1
    assert found.value("cupo_critical_section_seconds_count") == THE_FIRST + 1
    assert found.value("cupo_transaction_retries_total") == 0
    assert [record.attempts for record in records] == [1] * 5
    assert len({record.lock_wait_seconds for record in records}) == 1
    assert records[0].lock_wait_seconds > 0


def test_who_is_refused_without_a_lock_has_waited_for_none(
    scene: Scene, new_user: NewUser, auditor: Engine
) -> None:
    full, other = new_user(), new_user()
    put_devices(auditor, full, ["b", "c"])
    (refused, done), records = recorded_together(scene, (full, "a"), (other, "a"))
    assert isinstance(refused, DeviceLimitReached)
    assert isinstance(done, Registered)
    assert [record.attempts for record in records] == [1, 1]
    assert records[0].lock_wait_seconds == 0 < records[1].lock_wait_seconds


def test_who_leaves_a_group_for_a_lock_is_counted_and_is_no_run_again(
    scene: Scene, new_user: NewUser, auditor: Engine, counted: Callable[[], Metrics]
) -> None:
    users = [new_user() for _ in range(3)]
    registered(asyncio.run(scene.together(*((user, "first") for user in users))))
    before = counted()

    async def meet() -> None:
        with locked(auditor, users[0]) as let_go:
            async with scene.while_another_is_served():
                under_way = [scene.call(user) for user in users]
            registered(await all_of(under_way[1:]))
            let_go()
            registered(await all_of(under_way[:1]))

    asyncio.run(meet())
    found = counted().since(before)
    assert found.value("cupo_registration_group_left_total") == 1
    assert found.value("cupo_transaction_retries_total") == 0


@pytest.mark.parametrize("words", [LOCKS, "COMMIT"])
def test_a_group_that_fails_is_one_error_a_run_again_of_each_and_one_line_that_names_them(
    words: str, scene: Scene, new_user: NewUser, counted: Callable[[], Metrics]
) -> None:
    named: list[list[str]] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "A run for several calls failed" in record.getMessage():
                named.append([call.request_id for call in current_calls()])

    scene.lose(words, Fate.CUT_AFTER, after=LOCKS)
    logger, handler = logging.getLogger("app.db"), Handler()
    logger.addHandler(handler)
    try:
        results, records = recorded_together(scene, *((new_user(), "a") for _ in range(3)))
    finally:
        logger.removeHandler(handler)
    registered(results)
    assert named == [[record.request_id for record in records]]
    found = counted()
    assert found.by("cupo_database_errors_total", "kind") == {("lost_connection",): 1}
    assert found.value("cupo_transaction_retries_total") == 3
    assert found.value("cupo_registration_group_left_total") == 3
    assert [record.attempts for record in records] == [2] * 3
    assert [record.errno for record in records] == [2013] * 3
    unknown = {("resolved",): 3} if words == "COMMIT" else {}
    assert found.by("cupo_unknown_commits_total", "outcome") == unknown


def test_a_pool_in_use_is_the_pool_of_single_calls(
    scene: Scene, new_user: NewUser, counted: Callable[[], Metrics]
) -> None:
    in_use: list[float] = []

    async def meet() -> list[Result]:
        async with scene.while_another_is_served():
            in_use.append(counted().value("cupo_database_pool_in_use"))
            under_way = [scene.call(new_user()) for _ in range(3)]
            gate = scene.gate_at(LOCKS)
        await gate.reached()
        in_use.append(counted().value("cupo_database_pool_in_use"))
        gate.open()
        return await all_of(under_way)

    registered(asyncio.run(meet()))
    assert in_use == [1, 0]


def test_one_that_waited_and_then_goes_alone_has_its_transaction_in_its_own_request_s_span(
    scene: Scene, new_user: NewUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = InMemorySpanExporter()
    monkeypatch.setattr(tracing, "_spans", OpenTelemetry(exporter))
    scope: dict[str, Any] = {"method": "POST", "path": "/", "scheme": "http", "headers": []}

    async def meet() -> list[Result]:
        async with scene.while_another_is_served():
            with tracing.request_span(scope):
                under_way = [scene.call(new_user())]
        return await all_of(under_way)

    registered(asyncio.run(meet()))
    tracing.stop()
    spans = exporter.get_finished_spans()
    (request,) = (span for span in spans if span.name == "POST")
    parents = [span.parent for span in spans if span.name == "register"]
    assert [parent is not None and parent == request.context for parent in parents].count(True) == 1
