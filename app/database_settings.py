"""What the settings of the database may be, each alone and beside the others."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo
from pydantic_settings import BaseSettings
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from app.tls import verified_tls

# Each connection would get a database of its own.
_NO_FILE = (None, "", ":memory:")
SUPPORTED_DATABASES = ("mysql+pymysql", "mariadb+pymysql", "sqlite")
USUAL_PORT = 3306
# A name or an IPv4 address as it is, an IPv6 address in brackets.
_HOST = re.compile(r"(?P<host>[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")


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
    if not all(_is_known(name, given) for name, given in url.query.items()):
        # Not shown: of a password with a question mark in it, this would be the rest.
        raise ValueError(
            "has a parameter other than charset=utf8mb4, unix_socket=/path and ssl_disabled=true"
        )
    return value


def _is_known(name: str, given: str | tuple[str, ...]) -> bool:
    """Whether a connection is made as this parameter says. Of most the driver knows nothing, and fails."""
    match name:
        case "charset":
            return given == "utf8mb4"
        case "ssl_disabled":
            return given in {"1", "true"}  # any other text would be as good as true
        case "unix_socket":
            return isinstance(given, str) and given.startswith("/")
    return False


def _same_database(value: SecretStr, others: ValidationInfo) -> SecretStr:
    """What two URLs can tell: their hosts may differ, as one may lead through a proxy."""
    if "database_url" in others.data:
        url, served = (make_url(secret.get_secret_value()) for secret in (value, others.data["database_url"]))
        if (url.get_backend_name() == "sqlite") != (served.get_backend_name() == "sqlite"):
            raise ValueError("must lead to the same database as CUPO_DATABASE_URL, which is of another kind")
        if url.database != served.database:
            raise ValueError(f"names {url.database!r}, and CUPO_DATABASE_URL {served.database!r}")
    return value


def node_urls(url: URL, hosts: str | None) -> tuple[URL, ...]:
    """One URL for each of the hosts, which stand in place of the URL's own; raises ValueError."""
    if hosts is None:
        return (url,)
    urls = []
    for host in hosts.lower().split(","):
        found = _HOST.fullmatch(host.strip())
        if found is None or not 0 < int(found["port"] or url.port or USUAL_PORT) < 2**16:
            raise ValueError("is not a list of hosts such as db1:3306,db2:3306,db3")
        port = int(found["port"] or url.port or USUAL_PORT)
        node = url.set(host=found["host"].strip("[]"), port=port)
        if node in urls:
            raise ValueError(f"names {host.strip()} twice")
        urls.append(node)
    return tuple(urls)


def _of_a_cluster(hosts: str, others: ValidationInfo) -> str:
    if "database_url" in others.data:
        url = make_url(others.data["database_url"].get_secret_value())
        if url.get_backend_name() == "sqlite":
            raise ValueError("is of no use: CUPO_DATABASE_URL is a file")
        if "unix_socket" in url.query:
            raise ValueError("is of no use: CUPO_DATABASE_URL leads to a socket of this machine")
        node_urls(url, hosts)
    return hosts


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


DatabaseUrl = Annotated[SecretStr, AfterValidator(_supported)]
MigrationUrl = Annotated[SecretStr, AfterValidator(_supported), AfterValidator(_same_database)]
DatabaseHosts = Annotated[str, AfterValidator(_of_a_cluster)]
CaFile = Annotated[str, AfterValidator(_usable)]
CertificateFile = Annotated[str | None, AfterValidator(_usable_with_its_key)]


class DatabaseSettings(BaseSettings):
    """Those of `app.settings.Settings` that say where the database is, and how calls share it."""

    database_url: DatabaseUrl = Field(
        default=SecretStr("sqlite:///var/cupo.db"),
        description="Where devices are kept: `mysql+pymysql://user:password@host:3306/name` (MySQL and "
        "MariaDB), or a SQLite file for one machine.",
    )
    database_hosts: DatabaseHosts | None = Field(
        default=None,
        description="The nodes of one Galera cluster or replication group, `db1:3306,db2,db3`, in place of "
        "the URL's host; a user's calls prefer one of them. Unset: the URL's host alone.",
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
    database_connect_timeout_seconds: int | None = Field(
        default=None,
        ge=1,
        le=60,
        description="How long a new database connection may take. Unset: 3, or 1 where there is another "
        "node to go to.",
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

    group_size: int = Field(
        default=64, ge=1, le=1000, description="Registrations that share a transaction; 1: each has its own."
    )
    group_queue: int = Field(
        default=1000,
        ge=1,
        le=1_000_000,
        description="Registrations that may wait in each process for the next one, before 503 `overloaded`.",
    )
