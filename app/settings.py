"""Settings: one frozen object, read once from the environment (prefix `CUPO_`)."""

import os
from typing import Any, Literal

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy.engine import URL, make_url

from app.client_settings import Origins, ProxyNetworks
from app.database_settings import CaFile, CertificateFile, DatabaseUrl, MigrationUrl
from app.operation_settings import Instant, Traces
from app.token_settings import ClaimToMeet, Hs256Secret, JwksFile, JwksUrl, RootKey

PREFIX = "CUPO_"
# Read by scripts and tests, not by the service.
NOT_SETTINGS = frozenset({"CUPO_TEST_DATABASE_URL"})


class BadSettings(Exception):
    """The environment does not describe a service that can start; its text is one line per mistake."""


class Settings(BaseSettings):
    """Everything that can be set. Durations are in seconds; each name carries its unit."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, env_ignore_empty=True, extra="forbid")

    database_url: DatabaseUrl = Field(
        default=SecretStr("sqlite:///var/cupo.db"),
        description="Where devices are kept: `mysql+pymysql://user:password@host:3306/name` (MySQL and "
        "MariaDB), or a SQLite file for one machine.",
    )
    migration_database_url: MigrationUrl | None = Field(
        default=None,
        description="The same database by an account that may change the schema, for `cupo migrate` alone. "
        "Unset: `CUPO_DATABASE_URL`.",
    )
    database_tls_ca_file: CaFile | None = Field(
        default=None,
        description="PEM file with the authorities that may vouch for the database server, or `system` for "
        "the machine's. Unset: TLS where the server offers it, unverified.",
    )
    database_tls_key_file: str | None = Field(
        default=None,
        description="PEM file with the private key of `CUPO_DATABASE_TLS_CERTIFICATE_FILE`. Unset: it is in "
        "that file.",
    )
    database_tls_certificate_file: CertificateFile = Field(
        default=None,
        validate_default=True,
        description="PEM file with the service's own certificate, where the database server asks for one.",
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8000, ge=1, le=65535, description="Port to listen on.")
    workers: int = Field(default=1, ge=1, le=256, description="Processes that serve calls.")
    max_connections: int = Field(
        default=2000,
        ge=1,
        le=1_000_000,
        description="Open connections of each process; to one more the answer is 503 `overloaded`.",
    )
    head_timeout_seconds: float = Field(
        default=10.0, gt=0, le=600, description="How long a client may take to send a request's headers."
    )
    body_timeout_seconds: float = Field(
        default=20.0,
        gt=0,
        le=600,
        description="How long a client may take to send a request's body, or to take the last of an answer.",
    )
    trusted_proxies: ProxyNetworks | None = Field(
        default=None,
        description="Addresses and networks of proxies, with commas between, whose `X-Forwarded-For` and "
        "`X-Forwarded-Proto` are believed. Unset: nobody's.",
    )
    cors_origins: Origins | None = Field(
        default=None,
        description="Origins of web pages that may call the service from a browser, with commas between, or "
        "`*`. Unset: none.",
    )
    default_device_limit: int = Field(
        default=3, ge=0, le=10_000, description="Devices that a user may have; 0 refuses every new one."
    )
    default_device_limit_since: Instant | None = Field(
        default=None,
        description="When the default limit was last lowered, such as `2026-11-30T09:30:00Z`: the audit does "
        "not hold devices against it that came before. Unset: it always was as it is.",
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
    audit_interval_seconds: float = Field(
        default=3600.0,
        ge=0,
        le=604_800,
        description="How often `cupo worker` looks for users above their limit; 0: never.",
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
    root_key: RootKey | None = Field(
        default=None,
        description="A bearer key that may do everything, for making the first API key: 16 to 256 printable "
        "ASCII characters, or `off`. Unset: off; on SQLite one is made, and kept beside the database.",
    )
    jwks_url: JwksUrl | None = Field(
        default=None,
        description="Where the keys of user tokens are published, as a JWK Set: an https address.",
    )
    jwks_file: JwksFile | None = Field(
        default=None, description="A file with such a set, read again every 5 minutes."
    )
    jwt_hs256_secret: Hs256Secret | None = Field(
        default=None,
        description="One secret of at least 32 bytes for who makes user tokens and Cupo, in place of a set.",
    )
    jwt_issuer: ClaimToMeet = Field(
        default=None, validate_default=True, description="The `iss` that a user token must have."
    )
    jwt_audience: ClaimToMeet = Field(
        default=None, validate_default=True, description="The `aud` that it must have, alone or among others."
    )
    jwt_user_claim: str = Field(default="sub", min_length=1, description="The claim that holds the user id.")
    jwt_leeway_seconds: int = Field(
        default=30, ge=0, le=300, description="How far the issuer's clock may be from this one."
    )
    user_tokens_may_evict: bool = Field(
        default=False, description="Whether a user token may ask for eviction by `on_limit`; keys may."
    )
    group_size: int = Field(
        default=64, ge=1, le=1000, description="Registrations that share a transaction; 1: each has its own."
    )
    group_queue: int = Field(
        default=1000,
        ge=1,
        le=1_000_000,
        description="Registrations that may wait in each process for the next one, before 503 `overloaded`.",
    )
    database_pool_size: int = Field(
        default=10,
        ge=1,
        le=1000,
        description="Database connections of each process, and calls that it works on at once. Groups of "
        "registrations have up to four more.",
    )
    database_pool_wait_seconds: float = Field(
        default=3.0,
        gt=0,
        le=60,
        description="How long a call waits for a free connection, or a registration for those before it, "
        "before 503 `overloaded`.",
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

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info",
        description="What is logged: `info` has a line for each call, `debug` also for `/livez`, `/readyz` "
        "and `/metrics`.",
    )
    log_format: Literal["auto", "json", "console"] = Field(
        default="auto", description="How it is logged; `auto` is `console` on a terminal, else `json`."
    )
    slow_transaction_seconds: float = Field(
        default=1.0, gt=0, le=60, description="A transaction that takes this long gets a line of its own."
    )
    traces: Traces = Field(
        default="off",
        description="OpenTelemetry's traces, for which the extra `otel` must be installed. Its own variables "
        "(`OTEL_EXPORTER_OTLP_ENDPOINT`, …) say where they go.",
    )
    shutdown_delay_seconds: float = Field(
        default=0.0,
        ge=0,
        le=300,
        description="After SIGTERM, how long `/readyz` says 503 while calls are still served, so that a load "
        "balancer sees it before the port closes.",
    )
    keep_alive_seconds: int = Field(
        default=75,
        ge=1,
        le=3600,
        description="How long a client's connection may be idle; more than a load balancer's own limit.",
    )
    worker_metrics_port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="Where `cupo worker` answers `/metrics` and `/livez`, on `CUPO_HOST`. Unset: nowhere.",
    )

    @property
    def url(self) -> URL:
        return make_url(self.database_url.get_secret_value())

    @property
    def of_migrations(self) -> "Settings":
        """These, with the account that may change the schema."""
        return self.model_copy(update={"database_url": self.migration_database_url or self.database_url})

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
    name = str(error["loc"][0])
    reason = error["msg"].removeprefix("Value error, ")
    field = Settings.model_fields.get(name)
    is_secret = field is not None and "SecretStr" in str(field.annotation)
    # The @: an address may have a password in it.
    is_shown = error["input"] is not None and not is_secret and "@" not in str(error["input"])
    shown = f" (given: {error['input']!r})" if is_shown else ""
    return f"{PREFIX}{name.upper()}: {reason}{shown}"
