"""Many rows as one parameter of a statement, and as one value of its answer: as JSON.

With a parameter for each value, every length would be a statement of its own, to be made and parsed anew. A
driver that is written in Python also takes longer for a value than the database does.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Integer, String, text
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Connection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine


class ListOf:
    """Rows that a statement reads from its parameter `rows`; their columns, and `place`, their order from 1.

    MySQL manual, "JSON Table Functions", which MariaDB has as well; SQLite, "JSON Functions And Operators".
    """

    def __init__(self, **columns: TypeEngine[Any]) -> None:
        self._types = list(columns.values())
        places = [(name, f"'$[{number}]'") for number, name in enumerate(columns)]
        kinds = [kind.compile(dialect=mysql.dialect()) for kind in self._types]
        in_mysql = (f"{name} {kind} PATH {path}" for (name, path), kind in zip(places, kinds, strict=True))
        in_sqlite = (f"json_extract(value, {path}) AS {name}" for name, path in places)
        # Of names and types that the tables have, never of a value.
        statements = {
            "mysql": "SELECT * FROM JSON_TABLE(:rows, '$[*]'"  # noqa: S608
            f" COLUMNS (place FOR ORDINALITY, {', '.join(in_mysql)})) AS listed",
            "sqlite": f"SELECT key + 1 AS place, {', '.join(in_sqlite)} FROM json_each(:rows)",  # noqa: S608
        }
        self.of_dialect: dict[str, Any] = {
            dialect: text(statement).columns(place=Integer, **columns).subquery("listed")
            for dialect, statement in statements.items()
        }

    def parameter(self, tx: Connection, rows: Iterable[Sequence[Any]]) -> dict[str, str]:
        """`rows`, each with a value for each column."""
        kept = [kind.dialect_impl(tx.dialect).bind_processor(tx.dialect) for kind in self._types]
        values = [
            [value if keep is None else keep(value) for keep, value in zip(kept, row, strict=True)]
            for row in rows
        ]
        return {"rows": json.dumps(values, ensure_ascii=False, separators=(",", ":"), default=str)}


class rows_as_json(FunctionElement[str]):  # noqa: N801 - reads as the SQL function that it is
    """All rows of a statement as one JSON array of arrays, in no order; each array has the values given."""

    type = String()
    inherit_cache = True


@compiles(rows_as_json, "mysql")
def _rows_as_json_on_mysql(element: Any, compiler: Any, **options: Any) -> str:
    return f"JSON_ARRAYAGG(JSON_ARRAY({compiler.process(element.clauses, **options)}))"


@compiles(rows_as_json, "sqlite")
def _rows_as_json_on_sqlite(element: Any, compiler: Any, **options: Any) -> str:
    return f"json_group_array(json_array({compiler.process(element.clauses, **options)}))"
