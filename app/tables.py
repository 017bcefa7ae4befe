"""The tables. Migrations in `alembic/` lead to exactly this; a test holds them together."""

from typing import Any, get_args

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
)
from sqlalchemy.dialects import mysql

from app.auth.scopes import SCOPES
from app.dialects import (
    ASCII_KEY,
    COUNTER,
    DIGEST,
    INSTANT,
    LONG_TEXT,
    SECRET,
    SERIAL,
    SERIAL_REFERENCE,
    JsonArray,
    JsonObject,
    UserId,
)
from app.texts import DeliveryState, EventType, Platform

EVENT_TYPES = get_args(EventType)
PLATFORMS = get_args(Platform)
DELIVERY_STATES = get_args(DeliveryState)


def _ascii(length: int) -> Any:
    return String(length).with_variant(mysql.VARCHAR(length, charset="ascii", collation="ascii_bin"), "mysql")


def _one_of(names: tuple[str, ...]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _only(column: str, names: tuple[str, ...]) -> str:
    """That the column's text is of these names and of spaces."""
    rest = column
    for name in names:
        rest = f"replace({rest}, '{name}', '')"
    return f"trim({rest}) = ''"


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
    Column("platform", _ascii(16)),
    Column("model", String(64)),
    Column("os_version", String(64)),
    Column("app_version", String(64)),
    Column("metadata", JsonObject),
    Column("registered_at", INSTANT, nullable=False),
    Column("last_seen_at", INSTANT, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("lease_seconds", Integer),
    Column("expires_at", INSTANT),
    CheckConstraint("user_id <> 0", name="devices_user_id_is_set"),
    CheckConstraint("device_id <> ''", name="devices_device_id_is_set"),
    CheckConstraint(
        f"platform IN ({_one_of(PLATFORMS)})",
        name="devices_platform_is_known",
    ),
    CheckConstraint("metadata IS NULL OR json_valid(metadata)", name="devices_metadata_is_json"),
    CheckConstraint("revision >= 1", name="devices_revision_is_positive"),
    CheckConstraint("(lease_seconds IS NULL) = (expires_at IS NULL)", name="devices_lease_has_an_end"),
    # For the sweeper: the oldest end first. Devices without a lease are in it as well, all at its start.
    Index("devices_by_expiry", "expires_at"),
    **_OPTIONS,
)

# Limits of single users. A row stays when the user goes back to the default, so that its revision, which is
# the quota's ETag, never names two states.
user_quotas = Table(
    "user_quotas",
    metadata,
    Column("user_id", UserId, primary_key=True, autoincrement=False),
    Column("device_limit", Integer),
    Column("revision", Integer, nullable=False),
    CheckConstraint("user_id <> 0", name="user_quotas_user_id_is_set"),
    CheckConstraint("device_limit BETWEEN 0 AND 10000", name="user_quotas_limit_is_in_range"),
    CheckConstraint("revision >= 1", name="user_quotas_revision_is_positive"),
    **_OPTIONS,
)

device_blocks = Table(
    "device_blocks",
    metadata,
    Column("user_id", UserId, primary_key=True, autoincrement=False),
    Column("device_id", ASCII_KEY, primary_key=True),
    Column("blocked_at", INSTANT, nullable=False),
    CheckConstraint("user_id <> 0", name="device_blocks_user_id_is_set"),
    **_OPTIONS,
)

# The audit trail, and the outbox of what is to be told. Written in the transaction of the change itself.
events = Table(
    "events",
    metadata,
    Column("id", SERIAL, primary_key=True),
    Column("user_id", UserId, nullable=False),
    Column("occurred_at", INSTANT, nullable=False),
    Column("type", _ascii(32), nullable=False),
    Column("device_id", ASCII_KEY),
    Column("actor", _ascii(64), nullable=False),
    Column("reason", String(500)),
    Column("request_id", _ascii(128), nullable=False),
    Column("data", JsonObject, nullable=False),
    Column("fanned_out", Boolean, nullable=False, server_default="0"),
    CheckConstraint("user_id <> 0", name="events_user_id_is_set"),
    CheckConstraint(f"type IN ({_one_of(EVENT_TYPES)})", name="events_type_is_known"),
    # A user's trail, and the registrations of the last day.
    Index("events_by_user", "user_id", "occurred_at", "id"),
    # The outbox: what no delivery was made of yet. A mark for each row, since a number that was given later
    # may be committed earlier, and whoever remembers the last number it saw would pass by what comes after.
    Index("events_by_outbox", "fanned_out", "id"),
    **_OPTIONS,
    sqlite_autoincrement=True,
)

# Answers that are given again. The digest names caller, method, path and key; `user_id` is whose data the
# answer tells, which after a transfer is the receiver, and goes with that user.
idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("scope_digest", DIGEST, primary_key=True),
    Column("user_id", UserId, nullable=False),
    Column("request_digest", DIGEST, nullable=False),
    Column("answered_at", INSTANT, nullable=False),
    Column("status", Integer, nullable=False),
    Column("headers", JsonObject, nullable=False),
    Column("body", LONG_TEXT, nullable=False),
    CheckConstraint("status BETWEEN 200 AND 299", name="idempotency_keys_answer_is_a_success"),
    # For the sweeper.
    Index("idempotency_keys_by_age", "answered_at"),
    # For erasing a user.
    Index("idempotency_keys_by_user", "user_id"),
    **_OPTIONS,
)

# Who else may call. Rows stay when they are revoked, so that the `api_key:<id>` of the trail can be told.
api_keys = Table(
    "api_keys",
    metadata,
    Column("id", _ascii(12), primary_key=True),
    Column("name", String(100), nullable=False),
    Column("digest", DIGEST, nullable=False),
    Column("scopes", _ascii(255), nullable=False),
    Column("created_at", INSTANT, nullable=False),
    Column("created_by", _ascii(64), nullable=False),
    Column("expires_at", INSTANT),
    Column("last_used_at", INSTANT),
    Column("revoked_at", INSTANT),
    Column("revoked_by", _ascii(64)),
    CheckConstraint(_only("scopes", SCOPES), name="api_keys_scopes_are_known"),
    CheckConstraint("(revoked_at IS NULL) = (revoked_by IS NULL)", name="api_keys_revoked_by_somebody"),
    # For the list.
    Index("api_keys_by_age", "created_at", "id"),
    **_OPTIONS,
)

# Who is told, where, of which types. Its row is the lock of its deliveries: see docs/delivery_states.md. A
# deleted endpoint stays until its deliveries are gone.
webhook_endpoints = Table(
    "webhook_endpoints",
    metadata,
    Column("id", SERIAL, primary_key=True),
    Column("url", String(2048), nullable=False),
    Column("description", String(200)),
    Column("event_types", JsonArray),
    Column("secret", SECRET, nullable=False),
    Column("previous_secret", SECRET),
    Column("previous_secret_until", INSTANT),
    Column("revision", Integer, nullable=False),
    Column("version", COUNTER, nullable=False, server_default="0"),
    Column("created_at", INSTANT, nullable=False),
    Column("last_served_at", INSTANT),
    Column("disabled_at", INSTANT),
    Column("disabled_because", _ascii(16)),
    Column("deleted_at", INSTANT),
    CheckConstraint("revision >= 1", name="webhook_endpoints_revision_is_positive"),
    CheckConstraint(
        "event_types IS NULL OR json_valid(event_types)", name="webhook_endpoints_event_types_are_json"
    ),
    CheckConstraint(
        "(previous_secret IS NULL) = (previous_secret_until IS NULL)",
        name="webhook_endpoints_previous_secret_has_an_end",
    ),
    CheckConstraint(
        "(disabled_at IS NULL) = (disabled_because IS NULL)", name="webhook_endpoints_disabled_has_a_cause"
    ),
    CheckConstraint("disabled_because IN ('asked', 'gone')", name="webhook_endpoints_cause_is_known"),
    **_OPTIONS,
    sqlite_autoincrement=True,
)

# One event to be told to one endpoint. The CHECK constraints are the states of docs/delivery_states.md. Three
# columns are set in some states only, so that an index on them holds what a search is after and NULLs:
# `head_user_id` of the one delivery per endpoint and user that may be sent, `due_at`, `claimed_until`.
webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("id", SERIAL, primary_key=True),
    Column("endpoint_id", SERIAL_REFERENCE, nullable=False),
    Column("event_id", SERIAL_REFERENCE),
    Column("user_id", UserId),
    Column("head_user_id", UserId),
    Column("type", _ascii(32), nullable=False),
    Column("state", _ascii(16), nullable=False),
    Column("created_at", INSTANT, nullable=False),
    Column("due_at", INSTANT),
    Column("claimed_by", _ascii(36)),
    Column("claimed_until", INSTANT),
    Column("ended_at", INSTANT),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("last_attempt_at", INSTANT),
    Column("last_status", Integer),
    Column("last_duration_ms", Integer),
    Column("last_error", String(500)),
    Column("last_answer", String(1000)),
    # An event is told to an endpoint once, whoever fans it out.
    UniqueConstraint("event_id", "endpoint_id", name="webhook_deliveries_tell_once"),
    # Of one user, one delivery at a time is under way to an endpoint; the others wait for it.
    UniqueConstraint("endpoint_id", "head_user_id", name="webhook_deliveries_one_head"),
    CheckConstraint(f"state IN ({_one_of(DELIVERY_STATES)})", name="webhook_deliveries_state_is_known"),
    CheckConstraint("(event_id IS NULL) = (user_id IS NULL)", name="webhook_deliveries_event_has_a_user"),
    CheckConstraint(
        "head_user_id IS NULL OR head_user_id = user_id", name="webhook_deliveries_head_is_of_its_user"
    ),
    CheckConstraint(
        "(user_id IS NULL AND state <> 'waiting')"
        " OR (user_id IS NOT NULL"
        " AND (head_user_id IS NOT NULL) = (state IN ('pending', 'claimed', 'retrying')))",
        name="webhook_deliveries_head_is_open",
    ),
    CheckConstraint(
        "(due_at IS NOT NULL) = (state IN ('pending', 'retrying'))",
        name="webhook_deliveries_due_if_claimable",
    ),
    CheckConstraint(
        "(claimed_by IS NOT NULL) = (state = 'claimed')"
        " AND (claimed_until IS NOT NULL) = (state = 'claimed')",
        name="webhook_deliveries_claim_has_owner_and_end",
    ),
    CheckConstraint(
        "(ended_at IS NOT NULL) = (state IN ('delivered', 'discarded'))",
        name="webhook_deliveries_end_has_a_time",
    ),
    CheckConstraint("attempts >= 0", name="webhook_deliveries_attempts_are_counted"),
    CheckConstraint(
        "(state NOT IN ('waiting', 'pending') OR attempts = 0)"
        " AND (state NOT IN ('claimed', 'retrying', 'delivered') OR attempts > 0)",
        name="webhook_deliveries_attempts_fit_the_state",
    ),
    # What can be claimed of an endpoint, the longest due first.
    Index("webhook_deliveries_by_due", "endpoint_id", "due_at", "id"),
    # What is claimed, the first to run out first, and how much of it of each endpoint.
    Index("webhook_deliveries_by_claim", "claimed_until", "endpoint_id"),
    # Who comes next after a user's delivery; and for erasing a user.
    Index("webhook_deliveries_by_user", "user_id", "endpoint_id", "state", "id"),
    # Lists, the oldest open one, and what a deleted endpoint leaves.
    Index("webhook_deliveries_by_state", "endpoint_id", "state", "id"),
    # For the sweeper.
    Index("webhook_deliveries_by_end", "ended_at"),
    **_OPTIONS,
    sqlite_autoincrement=True,
)
