"""Settings: one frozen object, read once from the environment (prefix `CUPO_`)."""

import os
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SecretStr, ValidationError, ValidationInfo
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from app.client_settings import Origins, ProxyNetworks
from app.tls import verified_tls
from app.token_settings import ClaimToMeet, Hs256Secret, JwksFile, JwksUrl

PREFIX = "CUPO_"
# Read by scripts and tests, not by the service.
NOT_SETTINGS = frozenset({"CUPO_TEST_DATABASE_URL"})
# What CUPO_ROOT_KEY says to let only API keys and user tokens in.
NO_ROOT_KEY = "off"
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
    if any(name.startswith("ssl") and name != "ssl_disabled" for name in url.query):
        raise ValueError(
            "says how to use TLS; say it by CUPO_DATABASE_TLS_CA_FILE, which verifies the server"
        )
    if url.drivername == "sqlite" and (url.database in _NO_FILE or url.host or url.query):
        raise ValueError("must name a file that all connections share, such as sqlite:///var/cupo.db")
    return value


def _same_database(value: SecretStr, others: ValidationInfo) -> SecretStr:
    """What two URLs can tell: their hosts may differ, as one may lead through a proxy."""
    if "database_url" in others.data:
        url, served = (make_url(secret.get_secret_value()) for secret in (value, others.data["database_url"]))
        if (url.get_backend_name() == "sqlite") != (served.get_backend_name() == "sqlite"):
            raise ValueError("must lead to the same database as CUPO_DATABASE_URL, which is of another kind")
        if url.database != served.database:
            raise ValueError(f"names {url.database!r}, and CUPO_DATABASE_URL {served.database!r}")
    return value


def _usable(ca_file: str, others: ValidationInfo) -> str:
    for secret in filter(None, (others.data.get("database_url"), others.data.get("migration_database_url"))):
        url = make_url(secret.get_secret_value())
        if url.get_backend_name() == "sqlite":
            raise ValueError("is of no use: CUPO_DATABASE_URL is a file")
        if "ssl_disabled" in url.query:
            raise ValueError("is of no use: the database's URL says ssl_disabled")
    verified_tls(ca_file, None, None)
    return ca_file


def _usable_with_its_key(certificate_file: str | None, others: ValidationInfo) -> str | None:
    if not {"database_tls_ca_file", "database_tls_key_file"} <= others.data.keys():
        return certificate_file
    ca_file, key_file = others.data["database_tls_ca_file"], others.data["database_tls_key_file"]
    if certificate_file is None:
        if key_file is not None:
            raise ValueError("must be set where CUPO_DATABASE_TLS_KEY_FILE is")
    elif ca_file is None:
        raise ValueError("needs CUPO_DATABASE_TLS_CA_FILE: the server must be known first")
    else:
        verified_tls(ca_file, certificate_file, key_file)
    return certificate_file


def is_fit_for_a_key(text: str) -> bool:
    """Long enough to be a secret, and such that an Authorization header carries it unchanged."""
    return 16 <= len(text) <= 256 and text.isascii() and text.isprintable() and text == text.strip()


def _fit(value: SecretStr) -> SecretStr:
    if value.get_secret_value() != NO_ROOT_KEY and not is_fit_for_a_key(value.get_secret_value()):
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
    migration_database_url: (
        Annotated[SecretStr, AfterValidator(_supported), AfterValidator(_same_database)] | None
    ) = Field(
        default=None,
        description="The same database by an account that may change the schema, for `cupo migrate` alone. "
        "Unset: `CUPO_DATABASE_URL`.",
    )
    database_tls_ca_file: Annotated[str, AfterValidator(_usable)] | None = Field(
        default=None,
        description="PEM file with the authorities that may vouch for the database server, or `system` for "
        "the machine's. Unset: TLS where the server offers it, unverified.",
    )
    database_tls_key_file: str | None = Field(
        default=None,
        description="PEM file with the private key of `CUPO_DATABASE_TLS_CERTIFICATE_FILE`. Unset: it is in "
        "that file.",
    )
    database_tls_certificate_file: Annotated[str | None, AfterValidator(_usable_with_its_key)] = Field(
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
    root_key: Annotated[SecretStr, AfterValidator(_fit)] | None = Field(
        default=None,
        description="A bearer key that may do everything, for making the first API key: 16 to 256 printable "
        "ASCII characters, or `off`. Unset: off; on SQLite one is made, and kept beside the database.",
    )
    jwks_url: JwksUrl | None = Field(
        default=None,
        description="Where the keys of user tokens are published, as a JWK Set: an https address.",
    )
    jwks_file: JwksFile | None = Field(default=None, description="A file with such a set, in place of it.")
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
    def of_migrations(self) -> "Settings":
        """These, with the account that may change the schema."""
        return self.model_copy(update={"database_url": self.migration_database_url or self.database_url})

    @property
    def is_embedded(self) -> bool:
        return self.url.get_backend_name() == "sqlite"


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
    is_shown = error["input"] is not None and not (field and "SecretStr" in str(field.annotation))
    shown = f" (given: {error['input']!r})" if is_shown else ""
    return f"{PREFIX}{name.upper()}: {reason}{shown}"
