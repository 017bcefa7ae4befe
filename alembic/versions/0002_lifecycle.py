"""Leases, own limits, blocks, the trail, and kept answers."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

USER_ID = sa.BigInteger().with_variant(mysql.BIGINT(unsigned=True), "mysql")
SERIAL = USER_ID.with_variant(sa.Integer(), "sqlite")
INSTANT = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql")
DIGEST = sa.LargeBinary(32).with_variant(mysql.BINARY(32), "mysql")
LONG_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql")
OPTIONS: Any = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}
EVENT_TYPES = (
    "'device.registered', 'device.updated', 'device.revoked', 'device.evicted', 'device.replaced',"
    " 'device.expired', 'device.blocked', 'device.allowed', 'device.transferred', 'quota.changed',"
    " 'user.erased'"
)


def ascii_text(length: int) -> sa.types.TypeEngine[str]:
    return sa.String(length).with_variant(
        mysql.VARCHAR(length, charset="ascii", collation="ascii_bin"), "mysql"
    )


def upgrade() -> None:
    add_leases()
    op.create_table(
        "user_quotas",
        sa.Column("user_id", USER_ID, autoincrement=False, nullable=False),
        sa.Column("device_limit", sa.Integer()),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("user_id"),
        sa.CheckConstraint("user_id <> 0", name="user_quotas_user_id_is_set"),
        sa.CheckConstraint("device_limit BETWEEN 0 AND 10000", name="user_quotas_limit_is_in_range"),
        sa.CheckConstraint("revision >= 1", name="user_quotas_revision_is_positive"),
        **OPTIONS,
    )
    op.create_table(
        "device_blocks",
        sa.Column("user_id", USER_ID, autoincrement=False, nullable=False),
        sa.Column("device_id", ascii_text(128), nullable=False),
        sa.Column("blocked_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("user_id", "device_id"),
        sa.CheckConstraint("user_id <> 0", name="device_blocks_user_id_is_set"),
        **OPTIONS,
    )
    create_events()
    op.create_table(
        "idempotency_keys",
        sa.Column("scope_digest", DIGEST, nullable=False),
        sa.Column("user_id", USER_ID, nullable=False),
        sa.Column("request_digest", DIGEST, nullable=False),
        sa.Column("answered_at", INSTANT, nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("headers", sa.Text(), nullable=False),
        sa.Column("body", LONG_TEXT, nullable=False),
        sa.PrimaryKeyConstraint("scope_digest"),
        sa.CheckConstraint("status BETWEEN 200 AND 299", name="idempotency_keys_answer_is_a_success"),
        **OPTIONS,
    )
    op.create_index("idempotency_keys_by_age", "idempotency_keys", ["answered_at"])
    op.create_index("idempotency_keys_by_user", "idempotency_keys", ["user_id"])


def add_leases() -> None:
    """New columns that the version before neither reads nor writes; its devices have no lease."""
    with op.batch_alter_table("devices") as devices:
        devices.add_column(sa.Column("lease_seconds", sa.Integer()))
        devices.add_column(sa.Column("expires_at", INSTANT))
        devices.create_check_constraint(
            "devices_lease_has_an_end", "(lease_seconds IS NULL) = (expires_at IS NULL)"
        )
        devices.create_index("devices_by_expiry", ["expires_at"])


def create_events() -> None:
    op.create_table(
        "events",
        sa.Column("id", SERIAL, nullable=False),
        sa.Column("user_id", USER_ID, nullable=False),
        sa.Column("occurred_at", INSTANT, nullable=False),
        sa.Column("type", ascii_text(32), nullable=False),
        sa.Column("device_id", ascii_text(128)),
        sa.Column("actor", ascii_text(64), nullable=False),
        sa.Column("reason", sa.String(500)),
        sa.Column("request_id", ascii_text(128), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.CheckConstraint("user_id <> 0", name="events_user_id_is_set"),
        sa.CheckConstraint(f"type IN ({EVENT_TYPES})", name="events_type_is_known"),
        sa.Index("events_by_user", "user_id", "occurred_at", "id"),
        **OPTIONS,
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    for table in ("idempotency_keys", "events", "device_blocks", "user_quotas"):
        op.drop_table(table)
    with op.batch_alter_table("devices") as devices:
        devices.drop_index("devices_by_expiry")
        devices.drop_constraint("devices_lease_has_an_end", type_="check")
        devices.drop_column("expires_at")
        devices.drop_column("lease_seconds")
