"""docker-compose.yml and Dockerfile, checked without Docker: secrets, order, and their very commands."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from app.processes import longest_call_seconds
from app.settings import Settings
from loadtest.ports import free_port
from tests.processes import started
from tests.servers import Server, documented_sql, fresh_database
from tests.services import POLL_SECONDS, ROOT_KEY

ROOT = Path(__file__).parent.parent
PATIENCE_SECONDS = 60
MOST_LOOKS = 100
OURS = ("migrate", "doctor", "cupo", "worker")
TO_WATCH = ("prometheus", "grafana")


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    return services


def test_a_secret_comes_from_the_environment_or_the_start_is_refused(services: dict[str, Any]) -> None:
    secret = re.compile(r"\$\{[A-Z_]+:\?[^}]+\}")
    for service in services.values():
        for name, value in service.get("environment", {}).items():
            # Asked for by the service itself: Compose would ask those, too, who do not use its profile.
            if re.search("PASSWORD|KEY|URL", name) and value != "${GRAFANA_PASSWORD-}":
                assert secret.search(value), name
                rest = secret.sub("", value)
                assert rest in {"", url_without_password("cupo"), url_without_password("cupo_migrate")}


def url_without_password(account: str) -> str:
    return f"mysql+pymysql://{account}:@mysql:3306/cupo"


def test_the_account_that_may_change_the_schema_is_given_to_migrate_alone(services: dict[str, Any]) -> None:
    given = {name for name in OURS if "MIGRATION" in json.dumps(services[name]["environment"])}
    assert given == {"migrate"}
    for name in OURS:
        assert "//cupo:${MYSQL_PASSWORD:" in services[name]["environment"]["CUPO_DATABASE_URL"]


def made_accounts(services: dict[str, Any], passwords: dict[str, str]) -> str:
    """What the script says that the image's entrypoint reads when it makes the volume."""
    (mounted,) = (
        volume.split(":")[0]
        for volume in services["mysql"]["volumes"]
        if volume.split(":")[1].startswith("/docker-entrypoint-initdb.d/")
    )
    script = ROOT / mounted
    assert not script.stat().st_mode & 0o111, "the entrypoint runs what may be run, and then has no function"
    assert passwords.keys() <= services["mysql"]["environment"].keys()
    words = f"set -eu; docker_process_sql() {{ cat; }}; . {script}"
    told = subprocess.run(  # noqa: S603 - our own script
        ["bash", "-c", words],  # noqa: S607 - as the image finds it
        env=passwords | {"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    return told.stdout


def test_its_accounts_are_the_documented_ones(services: dict[str, Any]) -> None:
    passwords = {
        "CUPO_PASSWORD": "a-password-of-your-own",
        "CUPO_MIGRATION_PASSWORD": "another-password-of-your-own",
    }
    said = [statement.strip() for statement in made_accounts(services, passwords).split(";")]
    documented = [words for words in documented_sql() if words.startswith(("CREATE USER", "GRANT"))]
    assert said == [*documented, ""]


def test_grafana_does_not_start_without_a_password_of_ours(services: dict[str, Any], folder: Path) -> None:
    shell, option, script = services["grafana"]["entrypoint"]
    assert services["grafana"]["environment"]["GF_SECURITY_ADMIN_PASSWORD"] == "${GRAFANA_PASSWORD-}"
    started_instead = folder / "run.sh"
    started_instead.write_text("#!/bin/sh\necho started\n")
    started_instead.chmod(0o755)
    command = [shell, option, script.replace("$$", "$").replace("/run.sh", str(started_instead))]
    for password, status, said in (("", 1, ""), ("a password", 0, "started\n")):
        ended = subprocess.run(  # noqa: S603 - the command under test
            command,
            env={"PATH": os.environ["PATH"], "GF_SECURITY_ADMIN_PASSWORD": password},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ended.returncode, ended.stdout) == (status, said)
        assert ("GRAFANA_PASSWORD" in ended.stderr) == (not password)


def test_each_step_waits_for_the_one_before(services: dict[str, Any]) -> None:
    waits = {
        name: {other: wait["condition"] for other, wait in service.get("depends_on", {}).items()}
        for name, service in services.items()
    }
    assert waits == {
        "mysql": {},
        "migrate": {"mysql": "service_healthy"},
        "doctor": {"migrate": "service_completed_successfully"},
        "cupo": {"doctor": "service_completed_successfully"},
        "worker": {"doctor": "service_completed_successfully"},
        "prometheus": {},
        "grafana": {},
    }
    assert {name: service["restart"] for name, service in services.items()} == {
        "mysql": "unless-stopped",
        "migrate": "no",
        "doctor": "no",
        "cupo": "unless-stopped",
        "worker": "unless-stopped",
        "prometheus": "unless-stopped",
        "grafana": "on-failure:3",
    }


def test_the_service_may_do_little_and_has_time_to_end(services: dict[str, Any]) -> None:
    for name in OURS + TO_WATCH:
        service = services[name]
        assert service.get("init", name in TO_WATCH) is True
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    for name in ("cupo", "worker"):
        assert int(services[name]["stop_grace_period"].removesuffix("s")) > longest_call_seconds(Settings())
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert published == {
        "cupo": ["127.0.0.1:8000:8000"],
        "prometheus": ["127.0.0.1:9090:9090"],
        "grafana": ["127.0.0.1:3000:3000"],
    }


def test_what_watches_is_started_by_its_profile_alone(services: dict[str, Any]) -> None:
    profiles = {name: service["profiles"] for name, service in services.items() if "profiles" in service}
    assert profiles == {name: ["observability"] for name in TO_WATCH}
    ours = [volume for name in TO_WATCH for volume in services[name]["volumes"] if volume.startswith("./")]
    assert len(ours) == 3
    for volume in ours:
        folder, _, _ = volume.partition(":")
        assert (ROOT / folder).is_dir()
        assert volume.endswith(":ro")


def test_images_are_of_a_version_and_not_of_a_day(services: dict[str, Any]) -> None:
    assert re.fullmatch(r"mysql:8\.4\.\d+", services["mysql"]["image"])
    assert {services[name]["image"] for name in OURS} == {"cupo:0.1.0"}
    for name in TO_WATCH:
        assert re.fullmatch(r"\w+/\w+:v?\d+\.\d+\.\d+", services[name]["image"])
    base = re.findall(r"^FROM (.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert len(base) == 1
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+", base[0])


def test_the_image_is_made_of_pinned_packages_and_runs_as_nobody() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert "--require-hashes -r requirements.txt" in dockerfile
    steps = re.findall(r"^([A-Z]+) (.*)", dockerfile, re.MULTILINE)
    assert steps[-3][0] == "USER"
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", steps[-3][1])
    assert json.loads(steps[-1][1])[:4] == ["python", "-m", "app", "serve"]
    copied = [step[1].split()[0].rstrip("/") for step in steps if step[0] == "COPY"]
    assert all((ROOT / name).exists() for name in copied)
    let_in = re.findall(r"^!(.*?)/?$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert sorted(let_in) == sorted(copied)


@pytest.fixture(scope="module")
def environment(server: Server, services: dict[str, Any]) -> Iterator[dict[str, str]]:
    """The settings that the file gives to `cupo`, with the private server in place of its own."""
    with fresh_database(server, "cupo_test_compose") as url:
        assert services["cupo"]["environment"].keys() == {"CUPO_DATABASE_URL", "CUPO_ROOT_KEY"}
        assert services["migrate"]["environment"].keys() == {
            "CUPO_DATABASE_URL",
            "CUPO_MIGRATION_DATABASE_URL",
        }
        ours = {name: value for name, value in os.environ.items() if not name.startswith("CUPO_")}
        yield ours | {
            "CUPO_DATABASE_URL": server.url("cupo_test_compose"),
            "CUPO_MIGRATION_DATABASE_URL": url,
            "CUPO_ROOT_KEY": ROOT_KEY,
            "CUPO_PORT": str(free_port()),
        }


def command(words: list[str], environment: dict[str, str]) -> list[str]:
    assert words[0] == "python"
    return [sys.executable, *(word.replace(":8000/", f":{environment['CUPO_PORT']}/") for word in words[1:])]


def test_the_very_commands_of_the_file_migrate_check_and_serve(
    services: dict[str, Any], environment: dict[str, str], folder: Path
) -> None:
    doctor = command(services["doctor"]["command"], environment)
    migrate = command(services["migrate"]["command"], environment)
    for words, status in ((doctor, 1), (migrate, 0), (migrate, 0), (doctor, 0)):
        given = services["migrate" if words is migrate else "doctor"]["environment"]
        only_what_it_is_given = {
            name: value
            for name, value in environment.items()
            if name in given or not name.startswith("CUPO_")
        }
        ended = subprocess.run(  # noqa: S603 - the commands under test
            words, cwd=ROOT, env=only_what_it_is_given, capture_output=True, text=True, check=False
        )
        assert ended.returncode == status, ended.stdout + ended.stderr

    del environment["CUPO_MIGRATION_DATABASE_URL"]
    kind, *probe = services["cupo"]["healthcheck"]["test"]
    assert kind == "CMD"

    def is_healthy() -> bool:
        return (
            subprocess.run(  # noqa: S603 - the command under test
                command(probe, environment), env=environment, capture_output=True, check=False
            ).returncode
            == 0
        )

    assert not is_healthy()
    serve = command(services["cupo"]["command"], environment)
    work = command(services["worker"]["command"], environment)
    with (
        (folder / "log").open("w") as log,
        started(serve, cwd=ROOT, env=environment, stderr=log, stdout=log),
        started(work, cwd=ROOT, env=environment, stderr=log, stdout=log) as worker,
    ):
        for _ in range(MOST_LOOKS):
            if is_healthy():
                break
            time.sleep(POLL_SECONDS)  # polled, as Docker does
        answer = httpx.post(
            f"http://127.0.0.1:{environment['CUPO_PORT']}/v1/users/1/devices",
            json={"device_id": "a"},
            headers={"Authorization": f"Bearer {ROOT_KEY}"},
        )
        assert answer.status_code == 201
    assert worker.returncode == 0
    assert "Traceback" not in (folder / "log").read_text()
