"""No value of a caller is ever part of a statement's text: by reading the code, and by trying."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Engine

from tests.problems import refused_quietly, rows_of_all
from tests.services import Service
from tests.single_calls import NewUser, register

ROOT = Path(__file__).parent.parent.parent
MODULES = sorted((ROOT / "app").rglob("*.py"))
STATEMENT = re.compile(
    r"\b(SELECT|INSERT|UPDATE|DELETE|REPLACE|SHOW|SET|KILL|GRANT|CREATE|DROP|ALTER|PRAGMA|CALL|USE) "
)
# Those that take a statement as text. What else they are given must be made by SQLAlchemy or be a literal.
TAKE_TEXT = {"text", "literal_column", "exec_driver_sql", "DDL", "executemany"}

# Where a statement is put together all the same, and from what. None of it comes from a caller.
PUT_TOGETHER = {
    ("app/sessions.py", "session_variables"): "our own names, and numbers of the settings",
    ("app/sessions.py", "_prepare_mysql"): "what session_variables gives, and READ_BACK",
    ("app/sessions.py", "fit_lock_wait"): "a number of seconds",
    ("app/lists.py", "__init__"): "names and types of our tables' columns",
    ("app/fitness.py", "ask"): "the module's own questions",
    ("app/fitness.py", "_asking"): "the module's own questions",
    ("app/migrations.py", "_alone"): "a number of seconds",
    ("app/ops/checks.py", "variables"): "our own names of variables",
    ("app/ops/checks.py", "_grants"): "our own names of tables and columns",
}


def functions_of(path: Path) -> Iterator[tuple[tuple[str, str], ast.AST]]:
    """Each node of the module with the function that it is in."""
    name = path.relative_to(ROOT).as_posix()

    def walk(node: ast.AST, function: str) -> Iterator[tuple[tuple[str, str], ast.AST]]:
        for child in ast.iter_child_nodes(node):
            inner = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
            yield (name, inner), child
            yield from walk(child, inner)

    yield from walk(ast.parse(path.read_text(), str(path)), "")


def formatted(node: ast.AST) -> tuple[str, set[str]] | None:
    """The fixed text of a string that is put together, and what is put into it; None for any other node."""
    match node:
        case ast.JoinedStr(values=parts):
            fixed = "".join(str(part.value) for part in parts if isinstance(part, ast.Constant))
            return fixed, {ast.unparse(part.value) for part in parts if isinstance(part, ast.FormattedValue)}
        case ast.BinOp(left=left, op=ast.Mod() | ast.Add(), right=right):
            text = [one for one in (left, right) if isinstance(one, ast.Constant | ast.JoinedStr)]
            put = {ast.unparse(one) for one in (left, right) if not isinstance(one, ast.Constant)}
            return ("".join(map(ast.unparse, text)), put) if text else None
        case ast.Call(func=ast.Attribute(value=text, attr="format" | "join" | "replace"), args=args):
            return ast.unparse(text), {ast.unparse(one) for one in args}
    return None


def offences(path: Path) -> Iterator[tuple[tuple[str, str], str]]:
    """Where a statement is put together, or text is run that is not there to be read."""
    for place, node in functions_of(path):
        made = formatted(node)
        if made and STATEMENT.search(made[0]) and made[1]:
            yield place, f"puts {sorted(made[1])} into a statement"
        if isinstance(node, ast.Call) and node.args:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            is_run = name in TAKE_TEXT or "cursor.execute" in ast.unparse(node.func)
            if is_run and not is_literal(node.args[0]):
                yield place, f"gives {name}() what is no literal"


def is_literal(node: ast.AST) -> bool:
    match node:
        case ast.Constant():
            return True
        case ast.Name(id=name):
            return name.isupper()  # a constant of the module
        case ast.IfExp(body=one, orelse=other):
            return is_literal(one) and is_literal(other)
    return False


def test_statements_are_literals_or_sqlalchemys() -> None:
    found = [offence for path in MODULES for offence in offences(path)]
    assert [(place, what) for place, what in found if place not in PUT_TOGETHER] == []
    assert {place for place, _ in found} == PUT_TOGETHER.keys(), "an exception that is none any more"


@pytest.mark.parametrize(
    "code",
    [
        'tx.exec_driver_sql(f"DELETE FROM devices WHERE name = {name}")',
        "tx.execute(text(\"SELECT 1 FROM devices WHERE name = '%s'\" % name))",
        'query = "SELECT user_id FROM devices WHERE device_id = \'" + device_id + "\'"',
        'query = "UPDATE devices SET name = {}".format(name)',
        "tx.execute(text(query))",
        "tx.exec_driver_sql(query)",
        'select(literal_column(name)).where(text("1 = 1"))',
    ],
)
def test_a_statement_that_is_put_together_is_found(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _: f"def find(tx, name):\n    {code}\n")
    assert list(offences(ROOT / "app" / "devices" / "queries.py"))


INJECTIONS = [
    "'; DROP TABLE devices; --",
    "' OR '1'='1",
    '" OR ""="',
    "x' UNION SELECT version_num FROM alembic_version --",
    "1; SELECT SLEEP(5)",
    "' AND SLEEP(5) AND '1'='1",
    "%' OR 1=1 #",
    "\\' OR 1=1 --",
    "%s %(user)s :user ? {0} ${name}",
    "/*! SLEEP(5) */",
    "' INTO OUTFILE '/tmp/x",
    "\u02bc OR 1=1 -- \uff07",
]


@pytest.mark.parametrize("injection", INJECTIONS)
def test_what_looks_like_sql_comes_back_as_it_was_sent(
    api: httpx.Client, auditor: Engine, new_user: NewUser, injection: str
) -> None:
    user, before = new_user(), rows_of_all(auditor)
    texts = {"name": injection, "model": injection, "os_version": injection, "app_version": injection}
    metadata = {injection[:40].strip(): injection}
    device = register(api, user, device_id="a", **texts, metadata=metadata).json()["device"]
    assert {name: device[name] for name in texts} == texts
    assert device["metadata"] == metadata
    assert api.get(f"/v1/users/{user}/devices/a").json() == device
    quota = api.put(f"/v1/users/{user}/quota", json={"limit": 1, "reason": injection})
    assert quota.status_code == 200
    assert api.delete(f"/v1/users/{user}/devices/a", params={"reason": injection}).status_code == 204
    events = api.get(f"/v1/users/{user}/events").json()["items"]
    assert [event["reason"] for event in events] == [injection, injection, None]
    # One lock row, one own limit, three events, and nothing of anybody else is gone.
    change = [now - then for now, then in zip(rows_of_all(auditor), before, strict=True)]
    assert change == [0, 1, 1, 0, 3, *[0] * (len(change) - 5)]


@pytest.mark.parametrize("injection", INJECTIONS)
def test_what_looks_like_sql_in_the_place_of_an_id_or_a_parameter_is_refused(
    api: httpx.Client, service: Service, auditor: Engine, injection: str
) -> None:
    with refused_quietly(service, auditor):
        for answer in (
            api.get(f"/v1/users/1{httpx.QueryParams({'': injection})}/devices"),
            api.get("/v1/users/1/devices", params={"cursor": injection}),
            api.get("/v1/users/1/devices", params={"limit": injection}),
            api.get("/v1/users/1/devices", params={injection: "1"}),
            api.get("/v1/users/1/events", params={"cursor": injection}),
            api.request("DELETE", "/v1/users/1/devices/a", params={"block": injection}),
            api.post("/v1/users/1/devices", json={"device_id": injection}),
            api.post("/v1/users/1/devices", json={"replace_device_id": injection}),
            api.post("/v1/users/1/devices", json={"platform": injection}),
            api.post("/v1/users/1/devices", json={"on_limit": injection}),
            api.post("/v1/users/1/devices/a/transfer", json={"to_user_id": injection}),
            api.put("/v1/users/1/quota", json={"limit": injection}),
            api.patch("/v1/users/1/devices/a", json={}, headers=[(b"If-Match", injection.encode())]),
        ):
            assert answer.status_code in {404, 422}, answer.request
            assert answer.elapsed.total_seconds() < 4, "it slept"
