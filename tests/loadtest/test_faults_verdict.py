"""What a run with faults makes of answers, rows, nodes and trail that do not fit."""

import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from loadtest.faults import audit as audits
from loadtest.faults.audit import LOOKING_AT_ROWS, Findings, audit, said_by_cupo_audit
from loadtest.faults.nemesis import Struck
from loadtest.faults.outages import Outage
from loadtest.faults.record import Record, verdict
from loadtest.linearizability import Operation, check
from tests.databases import migrated_database
from tests.servers import Server

FINE = Findings(
    users=1, rows=1, unknown=0, violations=(), undecided=(), nodes=3, differing=(), trail="", unread=""
)
OUTAGE = Outage(Struck("kill-database@2s:1s", "node 1", 12.0, 13.0), 1.0, 1.0, 1.0, 0)
FIRST = Operation(1, "replica 1, client 1", "register", 10.0, 10.1, device="a", status=201)
SECOND = FIRST._replace(sent=11.0, finished=11.1, device="b")
ROWS = Operation(1, LOOKING_AT_ROWS, "list", 20.0, 20.1, status=200, seen=("a", "b"))


def record(findings: Findings = FINE, outages: tuple[Outage, ...] = (OUTAGE,)) -> Record:
    return Record("single", 3, 30.0, 100, 10.0, outages, findings, {})


def test_what_fits_holds() -> None:
    assert verdict(record()).state == "holds"


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ({"differing": ("cupo.devices",)}, "the nodes differ in cupo.devices"),
        ({"trail": "user 1: device a …"}, "cupo audit: user 1: device a …"),
        ({"violations": check([FIRST, ROWS], 3).violations}, "the rows are not what was answered: user 1"),
        (
            {"violations": check([FIRST, SECOND._replace(device="a")], 3).violations},
            "no order explains the answers: user 1",
        ),
    ],
)
def test_what_does_not_fit_is_broken_even_where_something_could_not_be_looked_at(
    found: dict[str, Any], told: str
) -> None:
    run = record(dataclasses.replace(FINE, unread="no answer", **found))
    assert verdict(run).state == "broken"
    assert verdict(run).reasons[0].startswith(told)


@pytest.mark.parametrize("found", [{"undecided": (1,)}, {"unread": "no answer"}])
def test_what_could_not_be_looked_at_proves_nothing(found: dict[str, Any]) -> None:
    assert verdict(record(dataclasses.replace(FINE, **found))).state == "unproven"


def test_a_service_that_never_comes_back_proves_nothing() -> None:
    assert verdict(record(outages=())).state == "unproven"
    gone = dataclasses.replace(OUTAGE, any_call=28.0, any_write=28.0)  # from the fault to the end
    assert verdict(record(outages=(gone,))).state == "unproven"


def looked_at(monkeypatch: pytest.MonkeyPatch, operations: Sequence[Operation], **servers: Any) -> Findings:
    monkeypatch.setattr(audits, "said_by_cupo_audit", lambda _settings: "")
    return audit(operations, 3, SimpleNamespace(**servers) if servers else None, {})  # type: ignore[arg-type]


def test_rows_that_are_lost_or_were_refused_or_never_asked_for_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert looked_at(monkeypatch, [FIRST, SECOND, ROWS]).violations == ()
    for operations in (
        [FIRST, SECOND, ROWS._replace(seen=("a",))],
        [FIRST, SECOND._replace(status=409, code="device_limit_reached"), ROWS],
        [FIRST, ROWS],
    ):
        assert len(looked_at(monkeypatch, operations).violations) == 1


def test_nodes_that_hold_other_rows_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audits, "SETTLE_SECONDS", 0)

    def node(checksum: int) -> SimpleNamespace:
        told = {"SHOW": [("devices",), ("events",)], "CHEC": [("cupo.devices", checksum), ("cupo.events", 1)]}
        return SimpleNamespace(run=lambda statement: told[statement[:4]])

    assert looked_at(monkeypatch, [ROWS], nodes=[node(7), node(7)]).differing == ()
    assert looked_at(monkeypatch, [ROWS], nodes=[node(7), node(8)]).differing == ("cupo.devices",)


def test_a_row_that_the_trail_does_not_explain_is_told(server: Server) -> None:
    with migrated_database(server, "cupo_test_untold") as url:
        settings = {"CUPO_DATABASE_URL": url}
        assert said_by_cupo_audit(settings) == ""
        engine = create_engine(url)
        with engine.begin() as rows:
            row = "INSERT INTO devices (user_id, device_id, registered_at, last_seen_at, revision)"
            rows.execute(text(f"{row} VALUES (7, 'a', NOW(), NOW(), 1)"))
        engine.dispose()
        assert "user 7: device a is there" in said_by_cupo_audit(settings)
