"""`cupo doctor` warns while a root key lets in, and says what to do."""

from pathlib import Path

import pytest

from app.engines import make_engine
from app.migrations import migrate
from app.ops.checks import Check, all_checks, all_hold
from app.settings import Settings, load_settings
from tests.services import ROOT_KEY


def check_of_root_key(settings: Settings) -> Check:
    engine = make_engine(settings, pool_size=2)
    checks = all_checks(engine, settings)
    engine.dispose()
    assert all_hold(checks)
    (found,) = (check for check in checks if check.name == "root key")
    return found


@pytest.mark.parametrize(("root_key", "status"), [(ROOT_KEY, "warn"), ("off", "ok"), (None, "ok")])
def test_a_root_key_that_is_set_is_a_warning(database_url: str, root_key: str | None, status: str) -> None:
    check = check_of_root_key(load_settings(database_url=database_url, root_key=root_key))
    assert check.status == status
    assert "cupo keys create" in check.wanted


@pytest.mark.parametrize(("root_key", "status"), [(ROOT_KEY, "warn"), ("off", "ok"), (None, "warn")])
def test_so_is_the_one_that_is_made_on_the_embedded_default(
    folder: Path, root_key: str | None, status: str
) -> None:
    settings = load_settings(database_url=f"sqlite:///{folder}/cupo.db", root_key=root_key)
    migrate(settings)
    assert check_of_root_key(settings).status == status
