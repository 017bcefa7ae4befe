"""How a violation is told: made small without making it up, in words, as a drawing, by the command."""

import math
import re
from pathlib import Path

import pytest

from loadtest import elements, page
from loadtest.errors import BadUse
from loadtest.linearizability import (
    OPERATIONS,
    Operation,
    Violation,
    check,
    draw,
    read_operations,
    write_operations,
)
from loadtest.linearizability.checking import MOST_REDUCED
from loadtest.linearizability.model import only_looks
from loadtest.linearizability.part import NO_LIMIT, Part
from tests.loadtest.browser import open_page
from tests.loadtest.conftest import Command
from tests.loadtest.histories import seeded
from tests.loadtest.lies import answered_twice, device_in_list, has_an_order, quota_wrong, status_flipped
from tests.loadtest.told import LIMIT, quota, register, revoke, seen, set_limit, truthful

LOST = [register("a", 0, 1, process="client 1"), seen("", 2, 3, process="client 2")]


def the_one(operations: list[Operation], limit: int = LIMIT) -> Violation:
    (found,) = check(operations, limit).violations
    return found


def test_no_part_of_a_truthful_history_accuses_it() -> None:
    rng = seeded(11)
    for _ in range(800):
        limit = rng.randint(0, 3)
        told = truthful(rng, rng.randint(5, 40), processes=6, limit=limit, unknown=rng.choice((0, 0.1)))
        devices = frozenset(name for name in "abcdef" if rng.random() < 0.4)
        until = rng.choice((math.inf, rng.choice(told).finished))
        part = Part(tuple(told), limit, until, rng.choice((None, devices)))
        part = part._replace(any_limit=part.devices is not None and rng.random() < 0.5)
        kept = [c for c, view in part.views() if not only_looks(view) or rng.random() < 0.5]
        kept = [c if rng.random() < 0.5 or c.kind == "quota" else c._replace(quota=None) for c in kept]
        assert part._replace(operations=tuple(kept)).accused() is None, part


def test_what_is_left_shows_the_lie_has_no_order_and_needs_all_of_it() -> None:
    rng = seeded(12)
    seen_kinds = set()
    for _ in range(250):
        limit = rng.randint(1, 3)
        told = truthful(rng, rng.randint(10, 60), processes=rng.randint(2, 6), limit=limit)
        lie = rng.choice((status_flipped, device_in_list, quota_wrong, answered_twice))
        false = lie(rng, told)
        truth = [one for one in told if one not in false]
        if not check(false, limit).violations or any(one.status in (201, 204) for one in truth):
            continue  # what is missing where a change is denied is no call that could be shown
        part = the_one(false, limit).part
        lies = {one._replace(quota=None) for one in false if one not in told or false.count(one) > 1}
        assert lies & {one._replace(quota=None) for one in part.operations}, (lies, part)
        views = [view for _, view in part.views()]
        if len(views) <= 8:
            assert not has_an_order(views, NO_LIMIT if part.any_limit else part.limit, part.until)
        _assert_least(part)
        seen_kinds.add(lie)
    assert len(seen_kinds) == 4


def _assert_least(part: Part) -> None:
    assert part.accused() == part
    for call, view in part.views():
        rest = tuple(one for one in part.operations if one != call)
        if only_looks(view):
            assert part._replace(operations=rest).accused() is None, (part, call)
        if call.quota is not None and call.kind != "quota" and part.devices is None:
            weaker = (*rest, call._replace(quota=None))
            assert part._replace(operations=weaker).accused() is None, (part, call)
    devices = part.devices or frozenset()
    if len(devices) > 1 and not part.begins_later:  # the past was left out for these devices
        for name in devices:
            assert part._replace(devices=devices - {name}).accused() is None, (part, name)


def test_what_a_device_alone_shows_is_told_without_the_others() -> None:
    rng = seeded(13)
    noise = [one._replace(sent=one.sent + 10, finished=one.finished + 10) for one in truthful(rng, 60)]
    lost = [register("x", 0, 1), revoke("x", 2, 3), register("x", 4, 5), seen("", 6, 7), revoke("x", 8, 9)]
    violation = the_one([*noise, *lost])
    assert list(violation.operations) == [register("x", 4, 5), seen("", 6, 7)]
    assert violation.impossible == seen("", 6, 7)
    assert violation.part.devices == frozenset("x")
    assert violation.part.any_limit
    assert violation.part.begins_later
    assert violation.left_out == len(noise) + 3


def test_limit_and_whoever_counts_stay_where_the_number_matters() -> None:
    over = [
        register("a", 0, 1),
        register("b", 2, 3),
        seen("ab", 4, 5),
        register("c", 6, 7),
        quota(3, 2, 8, 9),
    ]
    violation = the_one(over)
    assert violation.operations == (over[0], over[1], over[3])
    assert violation.part.devices == frozenset("abc")
    assert not violation.part.any_limit
    refused = [register("a", 0, 1), register("a", 2, 3, 200), set_limit(2, 4, 5), register("b", 6, 7, 409)]
    assert the_one(refused).operations == (refused[0], refused[2], refused[3])


def test_a_call_still_under_way_is_not_blamed_for_what_it_was_told_later() -> None:
    """Its answer fits what was sent after the impossible one."""
    early = [register("a", 0, 1), seen("", 2, 3)]
    late = [revoke("a", 4, 5), seen("", 2.5, 6)]
    assert the_one([*early, *late]).operations == tuple(early)


def test_no_more_than_20_are_made_small() -> None:
    told = [one._replace(user=n) for n in range(MOST_REDUCED + 1) for one in [*LOST, seen("a", 1.5, 1.6)]]
    found = check(told, LIMIT).violations
    assert [len(one.operations) for one in found] == [2] * MOST_REDUCED + [3]


def test_told_in_words() -> None:
    told = [register("b", 0.5, 0.6), register("c", 1.5, 4, 0, process="client 3"), *LOST[:1], seen("b", 2, 3)]
    assert str(the_one([*told, quota(2, 2, 8, 9)])).splitlines() == [
        "user 1, whatever the limit, of device a alone: no order explains these 2 answers",
        "     0.0 ms … 1000.0 ms  client 1     register a  201",
        "✕ 2000.0 ms … 3000.0 ms  client at 2  list        nothing (and 1 other)",
        "3 calls more of this user are left out, which do not matter here",
    ]


def test_drawn_with_the_impossible_one_marked() -> None:
    lost = register("a", 0.5, 9, 0, process="<client>")
    drawing = draw(the_one([lost, seen("a", 1, 2), revoke("a", 3, 4), register("a", 5, 6, 200)]))
    assert re.match(
        r'<svg [^>]*role="img" aria-label="user 1, whatever the limit, of device a alone', drawing
    )
    assert len(re.findall(r"<rect", drawing)) == 3
    assert len(re.findall(r'class="fill \w+ impossible"', drawing)) == 1
    assert "✕ register a → 200" in drawing
    assert re.search(
        r'class="fill failed open"><title>&lt;client&gt;: register a → unknown \(timeout\)', drawing
    )


@pytest.mark.browser
def test_page_shows_each_and_no_error(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    told = [one._replace(user=n) for n in (1, 2) for one in LOST]
    path.write_text(elements.document("histories", [page.histories(check(told, LIMIT).violations)]))
    opened = open_page(path, tmp_path / "profile")
    assert opened.console == ()
    assert opened.document.count("<svg") == 2
    assert "user 2, whatever the limit, of device a alone" in opened.document
    assert page.histories([]) == ""


def test_operations_are_kept_as_they_are(tmp_path: Path) -> None:
    told = truthful(seeded(14), 200)
    write_operations(tmp_path / OPERATIONS, told)
    assert read_operations(tmp_path / OPERATIONS) == told
    line = (tmp_path / OPERATIONS).read_text().splitlines()[0]
    assert "null" not in line


@pytest.mark.parametrize(
    "line",
    ["{", '{"user": 1}', '{"user":1,"process":"p","kind":"list","sent":2.0,"finished":1.0}', "[]"],
)
def test_file_of_something_else_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / OPERATIONS).write_text(line + "\n")
    with pytest.raises(BadUse, match="cannot be read as operations"):
        read_operations(tmp_path / OPERATIONS)


def test_command_says_that_all_is_well(command: Command, tmp_path: Path) -> None:
    write_operations(tmp_path / OPERATIONS, truthful(seeded(15), 100, limit=3))
    (tmp_path / "faults.json").write_text('{"limit": 3}')
    told = command("check", ".")
    assert told.status == 0, told
    assert told.out.startswith("HOLDS Every history is linearizable\n  101 calls of 1 users, ")
    assert not (tmp_path / "histories.html").exists()


def test_command_names_and_draws_what_is_impossible(command: Command, tmp_path: Path) -> None:
    write_operations(tmp_path / OPERATIONS, LOST)
    told = command("check", ".", "--limit", "2")
    assert told.status == 1, told
    assert told.out.startswith("BROKEN No order explains what 1 user was told")
    assert "✕ 2000.0 ms … 3000.0 ms  client 2  list        nothing\n" in told.out
    assert "<svg" in (tmp_path / "histories.html").read_text()


def test_command_proves_nothing_without_answers(command: Command, tmp_path: Path) -> None:
    write_operations(tmp_path / OPERATIONS, [register("a", 0, 1, 0)])
    told = command("check", ".", "--limit", "2")
    assert told.status == 2, told
    assert "UNPROVEN Nothing is proven" in told.out


def test_undecided_is_no_pass(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "__defaults__", (3,))
    write_operations(tmp_path / OPERATIONS, truthful(seeded(16), 100))
    told = command("check", ".", "--limit", "2")
    assert told.status == 2, told
    assert "UNPROVEN 1 users could not be decided within the bound on work\n  user 1 could" in told.out


@pytest.mark.parametrize(
    ("content", "words", "line"),
    [
        (None, ("--limit", "2"), "./operations.jsonl cannot be read as operations"),
        ("", (), "has no record of a run: give --limit"),
    ],
)
def test_command_misused_is_one_line(
    command: Command, tmp_path: Path, content: str | None, words: tuple[str, ...], line: str
) -> None:
    if content is not None:
        (tmp_path / OPERATIONS).write_text(content)
    told = command("check", ".", *words)
    assert (told.status, told.out) == (2, "")
    assert told.err.startswith("loadtest: ")
    assert line.removeprefix("./") in told.err
