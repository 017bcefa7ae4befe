"""The tables. Migrations in `alembic/` lead to exactly this; a test holds them together."""

from typing import Any

from sqlalchemy import CheckConstraint, Column, Integer, MetaData, String, Table
from sqlalchemy.dialects import mysql

from app.dialects import ASCII_KEY, COUNTER, INSTANT, JsonObject, UserId

PLATFORMS = ("ios", "android", "windows", "macos", "linux", "web", "tv", "other")
_PLATFORM = String(16).with_variant(mysql.VARCHAR(16, charset="ascii", collation="ascii_bin"), "mysql")

# InnoDB by name: on any other engine the row lock holds nobody back. Binary collation: text comes back, and
# compares, exactly as it was sent, whatever the server's default.
_OPTIONS: Any = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}

metadata = MetaData()
# One row per user, locked by whatever changes which devices count. It holds no business data, so that nothing
# else ever has a reason to lock it. `version` is the lock where several nodes write, see quotas.queries.
device_registration_locks = Table(
    "device_registration_locks",
    metadata,
    Column("user_id", UserId, primary_key=True, autoincrement=False),
    Column("version", COUNTER, nullable=False, server_default="0"),
    Column("created_at", INSTANT, nullable=False),
    **_OPTIONS,
)

# The primary key is the order on disk: a user's devices lie together, so counting them reads one place, and a
# device cannot be there twice.
devices = Table(
    "devices",
    metadata,
    Column("user_id", UserId, primary_key=True, autoincrement=False),
    Column("device_id", ASCII_KEY, primary_key=True),
    Column("name", String(100)),
    Column("platform", _PLATFORM),
    Column("model", String(64)),
    Column("os_version", String(64)),
    Column("app_version", String(64)),
    Column("metadata", JsonObject),
    Column("registered_at", INSTANT, nullable=False),
    Column("last_seen_at", INSTANT, nullable=False),
    Column("revision", Integer, nullable=False),
    CheckConstraint("user_id <> 0", name="devices_user_id_is_set"),
    CheckConstraint("device_id <> ''", name="devices_device_id_is_set"),
    CheckConstraint(
        "platform IN ({})".format(", ".join(f"'{name}'" for name in PLATFORMS)),
        name="devices_platform_is_known",
    ),
    CheckConstraint("metadata IS NULL OR json_valid(metadata)", name="devices_metadata_is_json"),
    CheckConstraint("revision >= 1", name="devices_revision_is_positive"),
    **_OPTIONS,
)
