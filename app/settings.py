"""Settings: one frozen object, read once from the environment (prefix `CUPO_`)."""

import os
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

PREFIX = "CUPO_"
# Read by scripts and tests, not by the service.
NOT_SETTINGS = frozenset({"CUPO_TEST_DATABASE_URL"})
# Each connection would get a database of its own.
_NO_FILE = (None, "", ":memory:")
SUPPORTED_DATABASES = ("mysql+pymysql", "mariadb+pymysql", "sqlite")


class BadSettings(Exception):
    """The environment does not describe a service that can start; its text is one line per mistake."""


def _supported(value: SecretStr) -> SecretStr:
    try:
        url = make_url(value.get_secret_value())
    except (ArgumentError, ValueError):  # ValueError: its port is no number
        raise ValueError("is not a database URL such as mysql+pymysql://app:secret@db:3306/cupo") from None
    if url.drivername not in SUPPORTED_DATABASES:
        raise ValueError(f"starts with {url.drivername!r}; use one of {', '.join(SUPPORTED_DATABASES)}")
    if url.drivername != "sqlite" and not url.database:
        raise ValueError("names no database; put its name last: mysql+pymysql://app:secret@db:3306/cupo")
    if url.drivername == "sqlite" and (url.database in _NO_FILE or url.host or url.query):
        raise ValueError("must name a file that all connections share, such as sqlite:///var/cupo.db")
    return value


def is_fit_for_a_key(text: str) -> bool:
    """Long enough to be a secret, and such that an Authorization header carries it unchanged."""
    return 16 <= len(text) <= 256 and text.isascii() and text.isprintable() and text == text.strip()


def _fit(value: SecretStr) -> SecretStr:
    if not is_fit_for_a_key(value.get_secret_value()):
        raise ValueError("must be 16 to 256 printable ASCII characters, with no space at either end")
    return value


class Settings(BaseSettings):
    """Everything that can be set. Durations are in seconds; each name carries its unit."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, env_ignore_empty=True, extra="forbid")

    database_url: Annotated[SecretStr, AfterValidator(_supported)] = Field(
        default=SecretStr("sqlite:///var/cupo.db"),
        description="Where devices are kept: `mysql+pymysql://user:password@host:3306/name` (MySQL and "
        "MariaDB), or a SQLite file for one machine.",
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8000, ge=1, le=65535, description="Port to listen on.")
    workers: int = Field(default=1, ge=1, le=256, description="Processes that serve calls.")
    default_device_limit: int = Field(
        default=3, ge=0, le=10_000, description="Devices that a user may have; 0 refuses every new one."
    )
    default_lease_seconds: int | None = Field(
        default=None,
        ge=60,
        le=31_536_000,
        description="A device frees its slot this long after it was last heard of. Unset: never.",
    )
    max_registrations_per_day: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description="New devices that a user may register in any 24 hours, before 429; 0: as many as fit.",
    )
    idempotency_hours: int = Field(
        default=24, ge=1, le=720, description="How long the answer to an `Idempotency-Key` is kept."
    )
    sweep_interval_seconds: float = Field(
        default=10.0, gt=0, le=3600, description="How often `cupo worker` looks for what has expired."
    )
    worker_concurrency: int = Field(
        default=16,
        ge=1,
        le=256,
        description="Deliveries that each worker sends at once; those that have been under way for half a "
        "second count no longer.",
    )
    max_in_flight_per_endpoint: int = Field(
        default=2,
        ge=1,
        le=100,
        description="Deliveries under way to one endpoint at a time, over all workers.",
    )
    embedded_worker: bool | None = Field(
        default=None,
        description="Whether each process of `cupo serve` has a worker in it. Unset: on SQLite only; "
        "elsewhere run `cupo worker`.",
    )
    webhooks_allow_http: bool = Field(
        default=False, description="Whether endpoints may have `http` URLs: for development."
    )
    webhooks_allow_private: bool = Field(
        default=False,
        description="Whether endpoints may be at private and loopback addresses: for development.",
    )
    root_key: Annotated[SecretStr, AfterValidator(_fit)] | None = Field(
        default=None,
        description="The bearer key of `/v1`, 16 to 256 printable ASCII characters. On SQLite one is "
        "made, and kept beside the database; MySQL and MariaDB need it set.",
    )
    database_pool_size: int = Field(
        default=10,
        ge=1,
        le=1000,
        description="Database connections of each process, and calls that it works on at once.",
    )
    database_pool_wait_seconds: float = Field(
        default=3.0,
        gt=0,
        le=60,
        description="How long a call waits for a free connection before 503 `overloaded`.",
    )
    database_connect_timeout_seconds: int = Field(
        default=3, ge=1, le=60, description="How long a new database connection may take."
    )
    lock_budget_seconds: float = Field(
        default=5.0,
        ge=2,
        le=60,
        description="Time for a call's whole transaction, runs again included, before 503 `contention`.",
    )
    lock_wait_seconds: int = Field(
        default=3, ge=1, le=50, description="`innodb_lock_wait_timeout` of the service's sessions."
    )
    contention_retries: int | None = Field(
        default=None,
        ge=0,
        le=100,
        description="Runs again after a deadlock or a lock wait; after a lost connection the lock budget "
        "alone counts. Unset: 5, or 12 where several nodes write.",
    )
    idle_transaction_seconds: int = Field(
        default=10,
        ge=5,
        le=600,
        description="The database ends a session that hangs this long inside a transaction (MariaDB).",
    )
    idle_connection_seconds: int = Field(
        default=60,
        ge=5,
        le=28_800,
        description="`wait_timeout`: the database ends a session that is idle this long, on MySQL also one "
        "that hangs while it holds a lock.",
    )
    multi_writer: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="Whether several database nodes take writes (Galera, Group Replication); `auto` asks the "
        "server.",
    )

    @property
    def url(self) -> URL:
        return make_url(self.database_url.get_secret_value())

    @property
    def is_embedded(self) -> bool:
        return self.url.get_backend_name() == "sqlite"

    @property
    def has_embedded_worker(self) -> bool:
        return self.is_embedded if self.embedded_worker is None else self.embedded_worker


def load_settings(**overrides: Any) -> Settings:
    """Settings from the environment, where `overrides` win; anything wrong raises BadSettings.

    A `CUPO_` name that is no setting is refused: a typo would otherwise leave a default in force unseen.
    """
    known = {PREFIX + name.upper() for name in Settings.model_fields} | NOT_SETTINGS
    unknown = sorted(
        name for name in os.environ if name.upper().startswith(PREFIX) and name.upper() not in known
    )
    if unknown:
        raise BadSettings("\n".join(f"{name}: is not a setting of Cupo" for name in unknown))
    try:
        return Settings(**overrides)
    except ValidationError as invalid:
        raise BadSettings("\n".join(_complaint(error) for error in invalid.errors())) from None


def _complaint(error: Any) -> str:
    """One line that names the variable, and never shows a secret's value."""
    name = PREFIX + str(error["loc"][0]).upper()
    reason = error["msg"].removeprefix("Value error, ")
    shown = "" if name in {"CUPO_ROOT_KEY", "CUPO_DATABASE_URL"} else f" (given: {error['input']!r})"
    return f"{name}: {reason}{shown}"
