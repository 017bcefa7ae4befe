"""Two databases of one connection each, for two calls that meet."""

from collections.abc import Iterator

import pytest

from app.db import Database
from tests.lifecycle.steps import database


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    with database(database_url) as made:
        yield made


@pytest.fixture
def other(database_url: str) -> Iterator[Database]:
    with database(database_url) as made:
        yield made
