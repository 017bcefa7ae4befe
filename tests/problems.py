"""What every problem document has, and whether anything was written beside it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine

from tests.raw import Answer
from tests.services import Service

MEMBERS = {"type", "title", "status", "code", "detail", "instance", "request_id"}


def assert_problem(answer: Answer, status: int, code: str) -> Any:
    """The problem document, whole and of one piece with its status and headers."""
    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json")
    problem = answer.json()
    assert problem["status"] == status
    assert problem["code"] == code
    assert problem["type"] == f"/problems/{code}"
    assert problem["request_id"] == answer.headers["x-request-id"]
    assert problem.keys() >= MEMBERS
    assert all(problem[member] for member in MEMBERS)
    return problem


@contextmanager
def refused_quietly(service: Service, auditor: Engine) -> Iterator[None]:
    """Meanwhile no row comes or goes, and the service logs no fault of its own."""
    rows, logged = rows_of_all(auditor), len(service.log.read_text())
    yield
    assert rows_of_all(auditor) == rows
    news = service.log.read_text()[logged:]
    assert "Traceback" not in news
    assert "ERROR" not in news


def rows_of_all(auditor: Engine) -> tuple[int, ...]:
    """How many rows each table has."""
    with auditor.connect() as connection:
        return tuple(
            connection.exec_driver_sql(query).scalar_one()
            for query in (
                "SELECT COUNT(*) FROM devices",
                "SELECT COUNT(*) FROM device_registration_locks",
            )
        )
