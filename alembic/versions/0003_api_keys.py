"""API keys."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

INSTANT = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql")
DIGEST = sa.LargeBinary(32).with_variant(mysql.BINARY(32), "mysql")
OPTIONS: Any = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}
WITHOUT_SCOPES = (
    "replace(replace(replace(replace(replace(replace(replace(scopes, 'devices:read', ''),"
    " 'devices:write', ''), 'quotas:write', ''), 'events:read', ''), 'users:erase', ''),"
    " 'webhooks:manage', ''), 'keys:manage', '')"
)


def ascii_text(length: int) -> sa.types.TypeEngine[str]:
    return sa.String(length).with_variant(
        mysql.VARCHAR(length, charset="ascii", collation="ascii_bin"), "mysql"
    )


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", ascii_text(12), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("digest", DIGEST, nullable=False),
        sa.Column("scopes", ascii_text(255), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("created_by", ascii_text(64), nullable=False),
        sa.Column("expires_at", INSTANT),
        sa.Column("last_used_at", INSTANT),
        sa.Column("revoked_at", INSTANT),
        sa.Column("revoked_by", ascii_text(64)),
        sa.PrimaryKeyConstraint("id"),
        sa.CheckConstraint(f"trim({WITHOUT_SCOPES}) = ''", name="api_keys_scopes_are_known"),
        sa.CheckConstraint(
            "(revoked_at IS NULL) = (revoked_by IS NULL)", name="api_keys_revoked_by_somebody"
        ),
        sa.Index("api_keys_by_age", "created_at", "id"),
        **OPTIONS,
    )


def downgrade() -> None:
    op.drop_table("api_keys")
