"""The outbox mark of events, endpoints, and deliveries."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

USER_ID = sa.BigInteger().with_variant(mysql.BIGINT(unsigned=True), "mysql")
SERIAL = USER_ID.with_variant(sa.Integer(), "sqlite")
INSTANT = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql")
SECRET = sa.LargeBinary(255).with_variant(mysql.VARBINARY(255), "mysql")
OPTIONS: Any = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
    "sqlite_autoincrement": True,
}


def ascii_text(length: int) -> sa.types.TypeEngine[str]:
    return sa.String(length).with_variant(
        mysql.VARCHAR(length, charset="ascii", collation="ascii_bin"), "mysql"
    )


def upgrade() -> None:
    mark_events()
    create_endpoints()
    create_deliveries()


def mark_events() -> None:
    """What has happened so far is told to nobody; what is written from now on is in the outbox.

    By a default that changes, and not by an UPDATE, which would write every row of the trail. The version
    before does not know the column; what it writes meanwhile is told.
    """
    copied: Any = {"table_kwargs": {"sqlite_autoincrement": True}}
    with op.batch_alter_table("events", **copied) as events:
        events.add_column(sa.Column("fanned_out", sa.Boolean(), nullable=False, server_default="1"))
    with op.batch_alter_table("events", **copied) as events:
        events.alter_column("fanned_out", existing_type=sa.Boolean(), server_default="0")
        events.create_index("events_by_outbox", ["fanned_out", "id"])


def create_endpoints() -> None:
    op.create_table(
        "webhook_endpoints",
        sa.Column("id", SERIAL, nullable=False),
        sa.Column("url", sa.String(2048), nullable=False),
        sa.Column("description", sa.String(200)),
        sa.Column("event_types", sa.Text()),
        sa.Column("secret", SECRET, nullable=False),
        sa.Column("previous_secret", SECRET),
        sa.Column("previous_secret_until", INSTANT),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("version", USER_ID, nullable=False, server_default="0"),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("last_served_at", INSTANT),
        sa.Column("disabled_at", INSTANT),
        sa.Column("disabled_because", ascii_text(16)),
        sa.Column("deleted_at", INSTANT),
        sa.PrimaryKeyConstraint("id"),
        sa.CheckConstraint("revision >= 1", name="webhook_endpoints_revision_is_positive"),
        sa.CheckConstraint(
            "event_types IS NULL OR json_valid(event_types)", name="webhook_endpoints_event_types_are_json"
        ),
        sa.CheckConstraint(
            "(previous_secret IS NULL) = (previous_secret_until IS NULL)",
            name="webhook_endpoints_previous_secret_has_an_end",
        ),
        sa.CheckConstraint(
            "(disabled_at IS NULL) = (disabled_because IS NULL)",
            name="webhook_endpoints_disabled_has_a_cause",
        ),
        sa.CheckConstraint("disabled_because IN ('asked', 'gone')", name="webhook_endpoints_cause_is_known"),
        **OPTIONS,
    )


def create_deliveries() -> None:
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", SERIAL, nullable=False),
        sa.Column("endpoint_id", USER_ID, nullable=False),
        sa.Column("event_id", USER_ID),
        sa.Column("user_id", USER_ID),
        sa.Column("head_user_id", USER_ID),
        sa.Column("type", ascii_text(32), nullable=False),
        sa.Column("state", ascii_text(16), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("due_at", INSTANT),
        sa.Column("claimed_by", ascii_text(36)),
        sa.Column("claimed_until", INSTANT),
        sa.Column("ended_at", INSTANT),
        sa.Column("attempts", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("last_attempt_at", INSTANT),
        sa.Column("last_status", sa.Integer()),
        sa.Column("last_duration_ms", sa.Integer()),
        sa.Column("last_error", sa.String(500)),
        sa.Column("last_answer", sa.String(1000)),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("event_id", "endpoint_id", name="webhook_deliveries_tell_once"),
        sa.UniqueConstraint("endpoint_id", "head_user_id", name="webhook_deliveries_one_head"),
        *delivery_checks(),
        sa.Index("webhook_deliveries_by_due", "endpoint_id", "due_at", "id"),
        sa.Index("webhook_deliveries_by_claim", "claimed_until", "endpoint_id"),
        sa.Index("webhook_deliveries_by_user", "user_id", "endpoint_id", "state", "id"),
        sa.Index("webhook_deliveries_by_state", "endpoint_id", "state", "id"),
        sa.Index("webhook_deliveries_by_end", "ended_at"),
        **OPTIONS,
    )


def delivery_checks() -> list[sa.CheckConstraint]:
    conditions = {
        "state_is_known": "state IN ('waiting', 'pending', 'claimed', 'retrying', 'delivered', 'discarded')",
        "event_has_a_user": "(event_id IS NULL) = (user_id IS NULL)",
        "head_is_of_its_user": "head_user_id IS NULL OR head_user_id = user_id",
        "head_is_open": "(user_id IS NULL AND state <> 'waiting')"
        " OR (user_id IS NOT NULL"
        " AND (head_user_id IS NOT NULL) = (state IN ('pending', 'claimed', 'retrying')))",
        "due_if_claimable": "(due_at IS NOT NULL) = (state IN ('pending', 'retrying'))",
        "claim_has_owner_and_end": "(claimed_by IS NOT NULL) = (state = 'claimed')"
        " AND (claimed_until IS NOT NULL) = (state = 'claimed')",
        "end_has_a_time": "(ended_at IS NOT NULL) = (state IN ('delivered', 'discarded'))",
        "attempts_are_counted": "attempts >= 0",
        "attempts_fit_the_state": "(state NOT IN ('waiting', 'pending') OR attempts = 0)"
        " AND (state NOT IN ('claimed', 'retrying', 'delivered') OR attempts > 0)",
    }
    return [
        sa.CheckConstraint(condition, name=f"webhook_deliveries_{name}")
        for name, condition in conditions.items()
    ]


def downgrade() -> None:
    op.drop_table("webhook_deliveries")
    op.drop_table("webhook_endpoints")
    with op.batch_alter_table("events", table_kwargs={"sqlite_autoincrement": True}) as events:
        events.drop_index("events_by_outbox")
        events.drop_column("fanned_out")
