"""Which users' rows a statement is after, as a router of a sharded database would have to find out."""

from collections.abc import Iterator

import sqlglot
from sqlglot import exp


class Scattered(Exception):
    """A table is read or written with nothing that says in which shard its rows are."""


def users_of(statement: str) -> set[int]:
    """The users whom the statement names by `user_id = <number>`, for each table in it, or gives in INSERT.

    None where it has no table. Raises Scattered.
    """
    parsed = sqlglot.parse_one(statement, dialect="mysql")
    named: set[int] = set()
    for table in parsed.find_all(exp.Table):
        around = table.find_ancestor(exp.Select, exp.Update, exp.Delete, exp.Insert)
        found = _given(around) if isinstance(around, exp.Insert) else _equal(around, table)
        if not found:
            raise Scattered(f"{table.name} in {statement}")
        named |= found
    return named


def _given(insert: exp.Insert) -> set[int]:
    """What INSERT … VALUES gives; of INSERT … SELECT nobody knows before it runs."""
    columns = [column.name for column in insert.this.expressions]
    if "user_id" not in columns or not isinstance(insert.expression, exp.Values):
        return set()
    place = columns.index("user_id")
    values = [row.expressions[place] for row in insert.expression.expressions]
    return {int(one.name) for one in values} if all(map(_is_number, values)) else set()


def _equal(around: exp.Expr | None, table: exp.Table) -> set[int]:
    return {
        int(number.name)
        for condition in _conditions(around, table)
        if isinstance(condition, exp.EQ)
        for column, number in ((condition.left, condition.right), (condition.right, condition.left))
        if isinstance(column, exp.Column)
        and column.name == "user_id"
        and (column.table or table.alias_or_name) == table.alias_or_name
        and _is_number(number)
    }


def _conditions(around: exp.Expr | None, table: exp.Table) -> Iterator[exp.Expr]:
    """What must be true of each row of the table: of an OR, neither side must."""
    join = table.parent if isinstance(table.parent, exp.Join) else None
    where = around.args.get("where") if around else None
    for condition in (where.this if where else None, join.args.get("on") if join else None):
        if condition is not None:
            whole = condition.unnest()
            parts = whole.flatten() if isinstance(whole, exp.And) else (whole,)
            yield from (part.unnest() for part in parts)


def _is_number(value: exp.Expr) -> bool:
    return isinstance(value, exp.Literal) and not value.is_string
