"""Schedules as they are written, and how long nobody was served after a fault."""

import pytest

from loadtest.errors import BadUse
from loadtest.faults.nemesis import Struck
from loadtest.faults.outages import outages
from loadtest.faults.schedule import KINDS, NAMED, POSSIBLE, Fault, Topology, parse_schedule
from loadtest.linearizability import Kind, Operation
from tests.loadtest.conftest import Command


def test_a_schedule_is_read_in_the_order_of_its_seconds() -> None:
    schedule = parse_schedule("pause-database#2@30s:10s, kill-worker@500ms", "galera")
    assert schedule.faults == (Fault("kill-worker", None, 0.5, 0.0), Fault("pause-database", 2, 30.0, 10.0))
    assert [str(fault) for fault in schedule.faults] == ["kill-worker@0.5s", "pause-database#2@30s:10s"]
    assert schedule.seconds == 45.0


def test_a_schedule_repeats_in_whole_rounds_for_as_long_as_is_asked() -> None:
    schedule = parse_schedule("kill-worker@2s", "single").for_seconds(25)
    assert [fault.at for fault in schedule.faults] == [2.0, 9.0, 16.0]
    assert schedule.seconds == 25.0
    assert parse_schedule("kill-worker@2s", "single").for_seconds(0).seconds == 7.0


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has no fault"),
        ("kill-database", "is no fault"),
        ("kill-database@5s", "write kill-database@5s:5s"),
        ("kill-worker@5s:5s", "write kill-worker@5s"),
        ("kill-database@soon:5s", "is not a duration"),
        ("kill-all@5s", "'kill-all' is not known: .*kill-database.* or stop-replica"),
        ("partition@5s:5s", "partition cannot be had on single: .*kill-database"),
        ("kill-database#0@5s:5s", "is no fault"),
    ],
)
def test_what_is_no_schedule_is_told_in_one_line(text: str, complaint: str) -> None:
    with pytest.raises(BadUse, match=complaint) as told:
        parse_schedule(text, "single")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("name", NAMED)
def test_a_named_schedule_can_be_had_on_its_topology_twice_in_ten_minutes(name: str) -> None:
    topology: Topology = next((one for one in POSSIBLE if one == name), "single")
    assert parse_schedule(name, topology).seconds <= 300


def test_every_kind_of_fault_is_in_a_named_schedule() -> None:
    assert {kind for kind in KINDS if not any(kind in text for text in NAMED.values())} == set()


def _call(finished: float, replica: int, status: int, kind: Kind = "register") -> Operation:
    operation = Operation(1, f"replica {replica}, client 1", "list", finished - 0.01, finished, status=status)
    return operation._replace(kind=kind)


def test_an_outage_lasts_to_the_next_success_and_is_told_of_the_fault_before_it() -> None:
    struck = [Struck("second", "node 1", 20.0, 20.0), Struck("first", "node 1", 10.0, 12.0)]
    calls = [
        *(_call(at, 1, 201) for at in (9.0, 10.5, 13.5, 14.0)),
        _call(11.0, 2, 503),
        _call(12.0, 1, 200, "list"),
        _call(13.0, 2, 409),
        *(_call(at, 2, 204, "revoke") for at in (19.0, 21.0)),
        _call(22.0, 1, 201),
    ]
    first, second = outages(struck, calls)
    assert first.struck.fault == "first"
    assert first.any_call == 5.0  # from 14 to 19
    assert first.any_write == 5.0
    assert first.worst_replica == 6.0  # the first one, from 14 to 20
    assert first.unknown == 1
    assert (second.any_call, second.any_write, second.worst_replica) == (1.0, 1.0, 2.0)


def test_an_outage_that_does_not_end_lasts_to_the_end_of_the_load() -> None:
    (outage,) = outages([Struck("first", "node 1", 10.0, 10.0)], [_call(9.0, 1, 201), _call(40.0, 1, 503)])
    assert outage.any_call == outage.any_write == 30.0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--schedule", "kill-worker#4@1s"), "strikes replica 4, and --replicas is 3"),
        (("--schedule", "kill-database#2@1s:1s"), "strikes node 2, and single has 1"),
        (("--schedule", "kill-worker@1s", "--workers", "1"), "take --workers 2"),
        (("--schedule", "kill-worker@1s", "--setting", "LIMIT=3"), "is none of the service's"),
        (("--database", "postgresql://db/cupo"), "--database-url is not understood"),
        (("--database", "postgresql"), "is neither one of single, galera, group-replication nor a URL"),
    ],
)
def test_a_run_that_cannot_be_had_says_why_before_it_starts_anything(
    command: Command, words: tuple[str, ...], complaint: str
) -> None:
    told = command("faults", *words)
    assert (told.status, told.err.count("\n")) == (2, 1), told
    assert complaint in told.err
