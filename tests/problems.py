"""What every problem document has, and whether anything was written beside it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from sqlalchemy import Engine

from tests import raw
from tests.services import Service

MEMBERS = {"type", "title", "status", "code", "detail", "instance", "request_id"}


def assert_problem(answer: raw.Answer, status: int, code: str) -> Any:
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
    rows, logged = rows_of_all(auditor), len(service.logged())
    yield
    assert rows_of_all(auditor) == rows
    news = service.logged()[logged:]
    assert "Traceback" not in news
    assert '"level": "error"' not in news


def rows_of_all(auditor: Engine) -> tuple[int, ...]:
    """How many rows each table has."""
    with auditor.connect() as connection:
        return tuple(
            connection.exec_driver_sql(query).scalar_one()
            for query in (
                "SELECT COUNT(*) FROM devices",
                "SELECT COUNT(*) FROM device_registration_locks",
                "SELECT COUNT(*) FROM user_quotas",
                "SELECT COUNT(*) FROM device_blocks",
                "SELECT COUNT(*) FROM events",
                "SELECT COUNT(*) FROM idempotency_keys",
                "SELECT COUNT(*) FROM api_keys",
                "SELECT COUNT(*) FROM webhook_endpoints",
                "SELECT COUNT(*) FROM webhook_deliveries",
            )
        )


def problem_of(answer: httpx.Response, status: int, code: str) -> Any:
    """`assert_problem` for the answer to a common client."""
    return assert_problem(raw.Answer(answer.status_code, dict(answer.headers), answer.content), status, code)


def mistakes(answer: httpx.Response) -> list[tuple[str, str]]:
    """Location and pointer of each mistake that a 422 names."""
    problem = problem_of(answer, 422, "invalid_request")
    return [(error["location"], error["pointer"]) for error in problem["errors"]]
