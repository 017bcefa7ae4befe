"""One run of one contestant: what it answered, and what that cost in processor time."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING, Self

import httpx

from bench import load
from bench.contestants import serving
from bench.database import count_devices, empty
from bench.processes import busy_seconds, processor_seconds
from bench.result import Sample
from tests.scraping import scrape

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.contestants import Scene, Serving
    from bench.load import Answers
    from bench.plan import Plan
    from bench.scenarios import Contestant, Scenario

LIMIT = 2
USERS = 2_000_000  # as the script of the load has it
PROBED_USERS = 3_000_000_000  # and above: none of the load's, nor of the filled database's
PATIENCE_SECONDS = 120  # beyond a run's own
# What the script's rounding of the rate to whole answers may take from the rows that are there.
MOST_MISSING = 0.01
# SPREAD refuses next to nobody, so whoever refuses many does something else.
MOST_REFUSED = 0.02
US = 1e6
REQUESTS = "cupo_http_request_duration_seconds_count"
USUAL_STATUSES = {"200", "201", "409"}
FAILURES = {"go": re.compile(rb"^\d{4}/.*", re.MULTILINE), "naive": re.compile(rb"^ERROR.*", re.MULTILINE)}


def measure(scene: Scene, plan: Plan, scenario: Scenario, contestant: Contestant, number: int) -> Sample:
    """The tables are empty before, unless they are the filled ones. Raises NotRun."""
    empty(scene.server, contestant.database)
    if contestant.program == "c":
        return _statements_alone(scene, plan, scenario, contestant, number)
    limit = plan.filled_limit if scenario.has_room else LIMIT
    with serving(scene, contestant, limit) as service:
        strange = strange_answers(service, PROBED_USERS + number, limit)
        _put_load_on(service, scenario, plan.warm_up_seconds)
        rows = count_devices(scene.server, contestant.database)
        failures_since = _account_of_failures(contestant, service, scenario.connections)
        with _Watch(scene, service) as used:
            ended = _put_load_on(service, scenario, plan.seconds)
        failure = failures_since()
        rows = count_devices(scene.server, contestant.database) - rows
    answers = load.parse(ended.said, plan.seconds)
    each = US / max(1, answers.total)
    return Sample(
        scenario=scenario.name,
        contestant=contestant.name,
        round=number,
        rate=answers.per_second if scenario.load == "HOT" else answers.registered_per_second,
        p50_ms=answers.p50_ms,
        p99_ms=answers.p99_ms,
        service_us=used.service_seconds * each,
        database_us=used.database_seconds * each,
        load_us=ended.processor_seconds * each,
        others_share=used.others_share(ended),
        failure=strange or failure or failure_of(scenario, answers, rows),
    )


def _put_load_on(service: Serving, scenario: Scenario, seconds: int) -> load.Ended:
    words = load.command(service.url, scenario.connections, seconds)
    environment = load.environment(scenario.load, service.token)
    return load.run_to_its_end(words, environment, seconds + PATIENCE_SECONDS)


class _Watch:
    """The processor time that the server, a service's processes and all else used while the `with` lasted."""

    def __init__(self, scene: Scene, service: Serving | None = None) -> None:
        assert scene.server.process is not None  # noqa: S101 - it is a private one
        self._sessions = (scene.server.process.pid, service.session if service else None)
        self.database_seconds = self.service_seconds = self.busy_seconds = self.lasted_seconds = 0.0

    def __enter__(self) -> Self:
        self._before = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        used = [after - before for before, after in zip(self._before, self._now(), strict=True)]
        self.database_seconds, self.service_seconds, self.busy_seconds, self.lasted_seconds = used

    def _now(self) -> list[float]:
        of_sessions = [processor_seconds(one) if one is not None else 0.0 for one in self._sessions]
        return [*of_sessions, busy_seconds(), time.monotonic()]

    def others_share(self, ended: load.Ended) -> float:
        """Which part of the processors' whole time went to what has no part in the run."""
        ours = self.database_seconds + self.service_seconds + ended.processor_seconds
        return max(0.0, self.busy_seconds - ours) / (self.lasted_seconds * (os.cpu_count() or 1))


def strange_answers(service: Serving, user: int, limit: int) -> str | None:
    """What is wrong if the user, who is new, does not get `limit` devices and then a refusal, as all must."""
    headers = {"Authorization": f"Bearer {service.token}"} if service.token else {}
    seen = []
    try:
        with httpx.Client(base_url=service.url, headers=headers, timeout=PATIENCE_SECONDS) as client:
            for number in range(limit + 1):
                new = {"device_id": f"probe-{number}"}
                seen.append(client.post(f"/v1/users/{user}/devices", json=new).status_code)
    except httpx.TransportError as error:
        return f"no answer to a first call: {error}"
    wanted = [201] * limit + [409]
    return None if seen == wanted else f"a new user at limit {limit} was answered {seen}"


def _account_of_failures(
    contestant: Contestant, service: Serving, connections: int
) -> Callable[[], str | None]:
    """By the contestant's own account, since wrk tells a 503 from a 409 no more than it tells the reasons.

    At the end of a run wrk breaks off one call on each connection, which some take for a failure.
    """
    if contestant.program == "cupo":
        before = scrape(service.url)

        def since() -> str | None:
            statuses = scrape(service.url).since(before).by(REQUESTS, "status")
            failed = {status: count for (status,), count in statuses.items() if status not in USUAL_STATUSES}
            return f"answers by status: {failed}" if sum(failed.values()) > connections else None

    else:
        size, pattern = service.log.stat().st_size, FAILURES[contestant.program]

        def since() -> str | None:
            failed = pattern.findall(service.log.read_bytes()[size:])
            said = failed[0].decode(errors="replace") if failed else ""
            return f"{len(failed)} failures, such as {said!r}" if len(failed) > connections else None

    return since


def failure_of(scenario: Scenario, answers: Answers, rows: int) -> str | None:
    """What makes the answers worthless; `rows` are the devices that were registered meanwhile."""
    if answers.broken:
        return f"{answers.broken} broken or unanswered calls"
    if answers.total == 0:
        return "no answer"
    if scenario.load == "SPREAD" and answers.refused > MOST_REFUSED * answers.total:
        return f"{answers.refused} of {answers.total:.0f} answers were no 2xx"
    registered = answers.registered_per_second * answers.seconds
    if scenario.load == "SPREAD" and rows < registered * (1 - MOST_MISSING) - 1:
        return f"{registered:.0f} answers were 2xx, and {rows} devices were registered"
    return None


def _statements_alone(
    scene: Scene, plan: Plan, scenario: Scenario, contestant: Contestant, number: int
) -> Sample:
    def run(seconds: int) -> load.Ended:
        given = (scene.server.port, scenario.connections, seconds, USERS, LIMIT)
        words = [str(scene.programs["c"]), *map(str, given)]
        return load.run_to_its_end(words, os.environ, seconds + PATIENCE_SECONDS)

    run(plan.warm_up_seconds)
    with _Watch(scene) as used:
        ended = run(plan.seconds)
    rate = parse_statements(ended.said)
    each = US / max(1, rate * plan.seconds)
    return Sample(
        scenario=scenario.name,
        contestant=contestant.name,
        round=number,
        rate=rate,
        p50_ms=None,
        p99_ms=None,
        service_us=ended.processor_seconds * each,
        database_us=used.database_seconds * each,
        load_us=0.0,
        others_share=used.others_share(ended),
        failure=None if rate else "no transaction was committed",
    )


def parse_statements(said: str) -> float:
    """Transactions per second."""
    found = re.search(r"tps=(\d+)", said)
    if found is None:
        raise ValueError(f"raw_limit said {said!r}")
    return float(found[1])
