"""Alembic's entry: runs on the connection that `app.migrations` holds the migration lock with."""

from alembic import context
from app.migrations import SCRIPTS  # noqa: F401 - fails early where the service is not importable
from app.tables import metadata

connection = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("Use «cupo migrate»: it holds the lock that keeps two replicas from migrating at once.")

context.configure(
    connection=connection, target_metadata=metadata, transactional_ddl=connection.dialect.name == "sqlite"
)
with context.begin_transaction():
    context.run_migrations()
