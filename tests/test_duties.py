"""A worker's duty tries less often the longer it fails, and says each thing once."""

import logging

import pytest

from app.duties import LONGEST_PAUSE_SECONDS, Duty, reason_of
from app.errors import Contention, DatabaseUnavailable

log = logging.getLogger(__name__)
USUAL_SECONDS = 0.1


def fail(duty: Duty, times: int = 1) -> None:
    for _ in range(times):
        with duty.one_pass():
            raise DatabaseUnavailable


def test_the_pause_grows_to_five_seconds_and_is_the_usual_one_again_afterwards() -> None:
    duty = Duty(log, "Working", "Not working")
    pauses = [duty.pause_seconds(USUAL_SECONDS)]
    for _ in range(7):
        fail(duty)
        pauses.append(duty.pause_seconds(USUAL_SECONDS))
    assert pauses == [USUAL_SECONDS, 0.25, 0.5, 1, 2, 4, LONGEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS]
    assert duty.pause_seconds(60) == 60
    fail(duty, 10_000)
    assert duty.pause_seconds(USUAL_SECONDS) == LONGEST_PAUSE_SECONDS
    with duty.one_pass():
        pass
    assert duty.pause_seconds(USUAL_SECONDS) == USUAL_SECONDS


def test_each_thing_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    duty = Duty(log, "Working", "Not working")
    for _ in range(2):
        fail(duty, 3)
        for _ in range(3):
            with duty.one_pass():
                pass
    said = [record.getMessage().partition(" in a row")[0] for record in caplog.records]
    assert said == ["Not working: Database unavailable", "Working again, after 3 failed"] * 2


def test_a_fault_is_no_failure_to_be_survived() -> None:
    duty = Duty(log, "Working", "Not working")
    with pytest.raises(ZeroDivisionError), duty.one_pass():
        raise ZeroDivisionError
    assert not duty.is_failing


def test_a_reason_is_not_what_callers_are_told() -> None:
    assert reason_of(Contention()) == "Contention"
    refused = DatabaseUnavailable()
    refused.__cause__ = RuntimeError("no such server")
    assert reason_of(refused) == "Database unavailable: no such server"
