"""Processes, barrier and schedule against the stand-in."""

import os
import signal
from collections.abc import Sequence

from loadtest import plan as plans
from loadtest.client import Access, Sample
from loadtest.crew import Crew, Outcome, run
from loadtest.plan import Pace, Plan, parse_mix
from loadtest.samples import percentile
from tests.loadtest.conftest import StandIn, StartStandIn
from tests.services import ROOT_KEY

REGISTER = parse_mix("register=1")
MIX = parse_mix("register=4,repeat=2,revoke=2,list=2")


def carried_out(plan: Plan, *standins: StandIn, crew: Crew | None = None, timeout: float = 30) -> Outcome:
    access = Access(tuple(standin.service.url for standin in standins), ROOT_KEY, timeout)
    return run(plan, access, crew or Crew(2, 40), _nobody_watches)


def _nobody_watches(samples: Sequence[Sample], seconds: float) -> None:
    pass


def devices_of_all(plan: Plan, standin: StandIn) -> int:
    with standin.service.client() as client:
        users = range(plan.first_user, plan.first_user + plan.users)
        return sum(client.get(f"/v1/users/{user}/quota").json()["used"] for user in users)


def p99(outcome: Outcome) -> float:
    return percentile(sorted(sample.latency for sample in outcome.samples), 99)


def test_every_call_of_a_race_is_made_once_and_all_lanes_start_together(
    standin: StandIn,
) -> None:
    plan = plans.race(101, 4, 400, 2, MIX)
    outcome = carried_out(plan, standin)
    planned = sorted((call.action, call.user, call.device) for call in plan.sequence())
    assert sorted((s.action, s.user, s.device) for s in outcome.samples) == planned
    assert (outcome.unsent, outcome.interrupted) == (0, False)
    first_answer = min(sample.finished for sample in outcome.samples)
    before_any_answer = [sample for sample in outcome.samples if sample.sent < first_answer + 0.05]
    assert len(before_any_answer) >= 40, "all lanes must have sent by the time that one is answered"


def test_steady_calls_leave_on_schedule(standin: StandIn) -> None:
    plan = plans.steady(102, 50, Pace(200, 1, 3), 2, MIX)
    outcome = carried_out(plan, standin)
    assert len(outcome.samples) == plan.calls
    on_time = sum(sample.sent <= plan.duration_seconds for sample in outcome.samples)
    assert on_time / plan.calls >= 0.99
    late = sorted(sample.sent - sample.due for sample in outcome.samples)
    assert percentile(late, 50) < 0.02


def test_a_stall_shows_in_the_p99_of_calls_that_were_due_meanwhile(start_standin: StartStandIn) -> None:
    plan = plans.steady(103, 50, Pace(100, 0, 4), 2, REGISTER)
    with start_standin("stall") as stalling:
        stalled = carried_out(plan, stalling, crew=Crew(2, 2))
    # Two connections: two calls were under way, the others waited for them. Counted from when they were sent,
    # only these two would know of the stall, and the p99 of 400 calls would not.
    from_sending = sorted(sample.finished - sample.sent for sample in stalled.samples)
    assert percentile(from_sending, 99) < 1.0
    assert p99(stalled) > 1.5
    assert stalled.unsent == 0


def test_several_targets_are_used_in_turn(start_standin: StartStandIn, standin: StandIn) -> None:
    plan = plans.race(104, 20, 200, 2, REGISTER)
    with start_standin() as other:
        outcome = carried_out(plan, standin, other)
        held = [devices_of_all(plan, one) for one in (standin, other)]
    assert min(held) > 20, "each of the two must have been called"
    assert sum(held) == sum(sample.status == 201 for sample in outcome.samples)


def test_calls_without_an_answer_are_samples_too(start_standin: StartStandIn) -> None:
    plan = plans.race(105, 2, 10, 2, REGISTER)
    with start_standin("never") as never:
        unanswered = carried_out(plan, never, timeout=0.5)
    with start_standin("silent") as silent:
        lost = carried_out(plan, silent)
    assert {(s.status, s.code) for s in unanswered.samples} == {(0, "timeout")}
    assert len(unanswered.samples) == 10
    assert {(s.status, s.code) for s in lost.samples if s.status != 409} == {(0, "connection_lost")}
    assert all(s.uncertain for s in unanswered.samples)


def test_a_stop_keeps_what_was_done_and_counts_what_was_not(standin: StandIn) -> None:
    plan = plans.steady(106, 50, Pace(100, 0, 60), 2, REGISTER)
    seen: list[Sample] = []

    def stop_soon(samples: Sequence[Sample], _seconds: float) -> None:
        seen.extend(samples)
        if len(seen) >= 50:
            os.kill(os.getpid(), signal.SIGINT)

    access = Access((standin.service.url,), ROOT_KEY, 30)
    outcome = run(plan, access, Crew(2, 10), stop_soon)
    assert outcome.interrupted
    assert 50 <= len(outcome.samples) < 1000
    assert len(outcome.samples) + outcome.unsent == plan.calls
