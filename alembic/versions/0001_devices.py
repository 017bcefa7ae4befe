"""Devices, and the lock rows that guard their number."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

USER_ID = sa.BigInteger().with_variant(mysql.BIGINT(unsigned=True), "mysql")
INSTANT = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql")
OPTIONS = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}


def ascii_text(length: int) -> sa.types.TypeEngine[str]:
    return sa.String(length).with_variant(
        mysql.VARCHAR(length, charset="ascii", collation="ascii_bin"), "mysql"
    )


def upgrade() -> None:
    op.create_table(
        "device_registration_locks",
        sa.Column("user_id", USER_ID, autoincrement=False, nullable=False),
        sa.Column("version", USER_ID, nullable=False, server_default="0"),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("user_id"),
        **OPTIONS,
    )
    op.create_table(
        "devices",
        sa.Column("user_id", USER_ID, autoincrement=False, nullable=False),
        sa.Column("device_id", ascii_text(128), nullable=False),
        sa.Column("name", sa.String(100)),
        sa.Column("platform", ascii_text(16)),
        sa.Column("model", sa.String(64)),
        sa.Column("os_version", sa.String(64)),
        sa.Column("app_version", sa.String(64)),
        sa.Column("metadata", sa.Text()),
        sa.Column("registered_at", INSTANT, nullable=False),
        sa.Column("last_seen_at", INSTANT, nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("user_id", "device_id"),
        sa.CheckConstraint("user_id <> 0", name="devices_user_id_is_set"),
        sa.CheckConstraint("device_id <> ''", name="devices_device_id_is_set"),
        sa.CheckConstraint(
            "platform IN ('ios', 'android', 'windows', 'macos', 'linux', 'web', 'tv', 'other')",
            name="devices_platform_is_known",
        ),
        sa.CheckConstraint("metadata IS NULL OR json_valid(metadata)", name="devices_metadata_is_json"),
        sa.CheckConstraint("revision >= 1", name="devices_revision_is_positive"),
        **OPTIONS,
    )


def downgrade() -> None:
    op.drop_table("devices")
    op.drop_table("device_registration_locks")
