"""The sizes and places that keep the code readable; the directions of imports are import-linter's."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
APP = sorted((ROOT / "app").rglob("*.py"))
MODULES = [
    *APP,
    *(path for name in ("alembic", "bench", "loadtest") for path in sorted((ROOT / name).rglob("*.py"))),
]

MODULE_LINES = 300
FUNCTION_LINES = 40
ROUTE_STATEMENTS = 8
USE_CASE_LINES = 25
USE_CASES = {"changes.py", "service.py"}

# Beside queries.py: the tables, what differs between databases, the migration lock, the checks of a server,
# the state of a node.
MAY_HAVE_SQL = {
    "app/tables.py",
    "app/dialects.py",
    "app/sessions.py",
    "app/lists.py",
    "app/fitness.py",
    "app/migrations.py",
    "app/ops/checks.py",
    "app/ops/account.py",
    "app/ops/row_lock.py",
}
SQL = ("SELECT ", "INSERT ", "UPDATE ", "DELETE ", "SHOW ", "SET SESSION", "PRAGMA ", "BEGIN")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def functions(path: Path) -> Iterator[Function]:
    return (node for node in ast.walk(parsed(path)) if isinstance(node, Function))


def lines_of(function: Function) -> int:
    """From `def` to the last line, without the docstring."""
    whole = (function.end_lineno or 0) - function.lineno + 1
    documented = function.body[0]
    if ast.get_docstring(function) is None:
        return whole
    return whole - ((documented.end_lineno or 0) - documented.lineno + 1)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_has_at_most_300_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MODULE_LINES


@pytest.mark.parametrize("path", APP, ids=name_of)
def test_a_function_has_at_most_40_lines(path: Path) -> None:
    long = {function.name: lines_of(function) for function in functions(path)}
    assert {name: lines for name, lines in long.items() if lines > FUNCTION_LINES} == {}


@pytest.mark.parametrize("path", [path for path in APP if path.name.endswith("routes.py")], ids=name_of)
def test_a_route_has_at_most_8_statements(path: Path) -> None:
    for function in functions(path):
        body = function.body[ast.get_docstring(function) is not None :]
        statements = sum(isinstance(node, ast.stmt) for part in body for node in ast.walk(part))
        assert statements <= ROUTE_STATEMENTS, function.name


@pytest.mark.parametrize("path", [path for path in APP if path.name in USE_CASES], ids=name_of)
def test_a_use_case_has_at_most_25_lines_and_promises_something(path: Path) -> None:
    for function in functions(path):
        assert lines_of(function) <= USE_CASE_LINES, function.name
        if not function.name.startswith("_"):
            assert ast.get_docstring(function), function.name


@pytest.mark.parametrize("path", APP, ids=name_of)
def test_sql_is_written_only_where_it_is_looked_for(path: Path) -> None:
    if path.name.endswith("queries.py") or name_of(path) in MAY_HAVE_SQL:
        return
    module = parsed(path)
    docstrings = {
        ast.get_docstring(node, clean=False)
        for node in ast.walk(module)
        if isinstance(node, ast.Module | ast.ClassDef | Function)
    }
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in docstrings:
            assert not node.value.startswith(SQL), f"line {node.lineno}"
        if isinstance(node, ast.ImportFrom) and node.module == "sqlalchemy":
            statements = {"select", "insert", "update", "delete", "text"}
            assert statements.isdisjoint(alias.name for alias in node.names), f"line {node.lineno}"


def test_queries_neither_commit_nor_roll_back() -> None:
    for path in APP:
        if path.name in USE_CASES | {"queries.py"}:
            called = {node.attr for node in ast.walk(parsed(path)) if isinstance(node, ast.Attribute)}
            assert called.isdisjoint({"commit", "rollback", "begin"}), name_of(path)


def test_nobody_catches_everything_and_goes_on() -> None:
    """A bare `except` or one of Exception hides faults; BaseException may be caught to tidy up and raise."""
    for path in APP:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ExceptHandler):
                caught = node.type.id if isinstance(node.type, ast.Name) else None
                assert node.type is not None, f"{name_of(path)} line {node.lineno}"
                assert caught != "Exception", f"{name_of(path)} line {node.lineno}"
                if caught == "BaseException":
                    assert isinstance(node.body[-1], ast.Raise), f"{name_of(path)} line {node.lineno}"
