"""What the settings of the database may be, each alone and beside the others."""

import re
from typing import Annotated

from pydantic import AfterValidator, SecretStr, ValidationInfo
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
