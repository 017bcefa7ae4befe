"""A new version migrates first: the replicas of the old one go on serving until they are replaced."""

import os
import subprocess
import sys
from pathlib import Path

import httpx
from sqlalchemy import create_engine, text

from app.migrations import migrate
from app.settings import load_settings
from tests.servers import Server, fresh_database
from tests.services import PATIENT, ROOT_KEY, running_service

# As every migration must: it adds, and what it adds may be left out.
BY_A_LATER_VERSION = (
    "ALTER TABLE devices ADD COLUMN colour VARCHAR(20)",
    "CREATE TABLE plans (plan_id INT PRIMARY KEY)",
    "UPDATE alembic_version SET version_num = 'later'",
)


def test_the_old_version_serves_while_the_schema_is_a_later_ones(server: Server, folder: Path) -> None:
    with fresh_database(server, "cupo_test_upgrades") as url:
        migrate(load_settings(database_url=url, root_key=ROOT_KEY))
        with running_service(url, folder, **PATIENT) as service, service.client() as api:
            assert api.post("/v1/users/1/devices", json={"device_id": "before"}).status_code == 201
            engine = create_engine(url, isolation_level="AUTOCOMMIT")
            with engine.connect() as connection:
                for statement in BY_A_LATER_VERSION:
                    connection.execute(text(statement))
            engine.dispose()
            assert api.post("/v1/users/1/devices", json={"device_id": "after"}).status_code == 201
            assert api.get("/v1/users/1/devices").json()["quota"]["used"] == 2
            ready = httpx.get(f"{service.url}/readyz")
            assert ready.status_code == 200
            found = {check["name"]: check["found"] for check in ready.json()["checks"]}
            assert found["migrations"] == "later (of a later version)"
        doctor = subprocess.run(
            [sys.executable, "-m", "app", "doctor"],
            env=os.environ | {"CUPO_DATABASE_URL": url},
            capture_output=True,
            check=False,
        )
        assert doctor.returncode == 0
