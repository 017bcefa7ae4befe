"""Databases at head, as the service has them: one account migrates, another serves."""

from collections.abc import Iterator
from contextlib import contextmanager

from app.migrations import migrate
from app.settings import load_settings
from tests.servers import Server, fresh_database
from tests.services import ROOT_KEY


@contextmanager
def migrated_database(server: Server, name: str) -> Iterator[str]:
    """A database at head, and its URL for the account of the service, which cannot change the schema."""
    with fresh_database(server, name) as url:
        migrate(load_settings(database_url=url, root_key=ROOT_KEY))
        yield server.url(name)
