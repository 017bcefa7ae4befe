"""What the database says of the service's account and session: rights it has too many, encryption."""

import ipaddress
import re
from collections.abc import Iterator

from sqlalchemy.engine import URL, Connection

MOST_NAMED = 6  # of an administrator's dozens
NEEDED = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE"})
MEMBERS = "performance_schema.replication_group_members"  # where the nodes of a group are told: app.fitness
_RIGHTS = re.compile(r"GRANT (?P<rights>.+?) ON (?P<where>.+?) TO .+")
_ROLE = re.compile(r"GRANT (?P<role>.+?) TO .+@.+")


def needless_rights(connection: Connection) -> list[str]:
    """What the account may do beyond the four rights on the tables of its own database, roles included."""
    active = connection.exec_driver_sql("SELECT CURRENT_ROLE()").scalar() or "NONE"
    grants = connection.exec_driver_sql("SHOW GRANTS").scalars().all()
    database = connection.engine.url.database or ""
    return [found for grant in grants for found in _needless(grant, database, _roles(active))]


def _needless(grant: str, database: str, active_roles: set[str]) -> Iterator[str]:
    """Of one line of SHOW GRANTS."""
    if rights := _RIGHTS.fullmatch(grant):
        # Names of columns stand in brackets; MySQL's dynamic rights have no space after their commas.
        may = set(re.split(r", *", re.sub(r" *\(.*?\)", "", rights["rights"]))) - {"USAGE"}
        if "WITH GRANT OPTION" in grant:
            may.add("GRANT OPTION")
        if _is_of(rights["where"], database):
            may -= NEEDED
        if rights["where"].replace("`", "") == MEMBERS:
            may -= {"SELECT"}
        if may:
            first, rest = sorted(may)[:MOST_NAMED], sorted(may)[MOST_NAMED:]
            more = f" and {len(rest)} more" if rest else ""
            yield f"{', '.join(first)}{more} on {rights['where']}"
    # The rights of a role that is active are told in lines of their own.
    elif (role := _ROLE.fullmatch(grant)) and not _roles(role["role"]) <= active_roles:
        yield f"the role {role['role']}"


def _roles(names: str) -> set[str]:
    """MySQL writes `name`@`host`, MariaDB the name alone and in quotes only here and there."""
    return {re.sub(r"[`']|@.*", "", name) for name in re.split(r", *", names)}


def _is_of(where: str, database: str) -> bool:
    """Whether it lies in the database. An unescaped `_` in it is a wildcard that hardly anyone means."""
    name = where.removeprefix("TABLE ").partition(".")[0].strip("`")
    return "%" not in name.replace(r"\%", "") and re.sub(r"\\([_%])", r"\1", name) == database


def encryption(connection: Connection) -> str | None:
    """Version and cipher of this session's TLS."""
    rows = connection.exec_driver_sql(
        "SHOW SESSION STATUS WHERE Variable_name IN ('Ssl_version', 'Ssl_cipher')"
    )
    said = {name.lower(): value for name, value in rows}
    return f"{said['ssl_version']} {said['ssl_cipher']}" if said.get("ssl_cipher") else None


def is_on_this_machine(url: URL) -> bool:
    if "unix_socket" in url.query or url.host in {None, "", "localhost"}:
        return True
    try:
        return ipaddress.ip_address(url.host or "").is_loopback
    except ValueError:
        return False
