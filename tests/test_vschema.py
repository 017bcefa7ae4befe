"""The VSchema has a place for each table, and `user_id` says where the rows of a user are."""

import json
from pathlib import Path

from app.tables import metadata

FILE = Path(__file__).parent.parent / "deploy" / "vitess" / "vschema.json"
KEYSPACES = json.loads(FILE.read_text())["keyspaces"]
SHARDED, SHARED = KEYSPACES["cupo"], KEYSPACES["cupo_shared"]
SEQUENCES = {f"cupo_shared.{name}" for name, table in SHARED["tables"].items() if table.get("type")}
UNSHARDED = set(SHARED["tables"]) - {name.partition(".")[2] for name in SEQUENCES}


def test_each_table_has_one_place() -> None:
    assert sorted([*SHARDED["tables"], *UNSHARDED]) == sorted([*metadata.tables, "alembic_version"])
    assert (SHARDED["sharded"], SHARED["sharded"]) == (True, False)


def test_a_sharded_table_is_sharded_by_a_user_whom_each_row_has() -> None:
    for name, table in SHARDED["tables"].items():
        (vindex,) = table["column_vindexes"]
        assert vindex["column"] == "user_id"
        assert SHARDED["vindexes"][vindex["name"]] == {"type": "xxhash"}
        assert not metadata.tables[name].c.user_id.nullable, name


def test_a_table_whose_rows_may_have_no_user_is_not_sharded() -> None:
    for name in UNSHARDED - {"alembic_version"}:
        table = metadata.tables[name]
        assert "user_id" not in table.c or table.c.user_id.nullable, name


def test_no_shard_counts_by_itself() -> None:
    """Two shards would give one number to two rows."""
    counted = {name for name in SHARDED["tables"] if metadata.tables[name].autoincrement_column is not None}
    by_sequence = {
        name: table["auto_increment"]
        for name, table in SHARDED["tables"].items()
        if "auto_increment" in table
    }
    assert set(by_sequence) == counted
    assert {one["sequence"] for one in by_sequence.values()} == SEQUENCES
    assert {one["column"] for one in by_sequence.values()} == {"id"}
