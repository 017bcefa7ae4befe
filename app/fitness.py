"""Whether a node of a cluster is fit for calls: it takes writes, is in the cluster, and keeps up with it."""

from collections.abc import Callable, Sequence
from typing import Any

from pymysql.err import OperationalError
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

# What a server says to a write by itself: one that is read-only, and a Galera node that has lost the others.
READ_ONLY = 1290
NOT_IN_THE_CLUSTER = 1047
DENIED = 1142
STATE = (
    "SELECT LOWER(variable_name), variable_value FROM {schema}.global_variables WHERE LOWER(variable_name) IN"
    " ('read_only', 'super_read_only', 'wsrep_on', 'group_replication_group_name')"
    " UNION ALL SELECT LOWER(variable_name), variable_value FROM {schema}.global_status"
    " WHERE LOWER(variable_name) IN"
    " ('wsrep_ready', 'wsrep_cluster_status', 'wsrep_local_state_comment', 'wsrep_cluster_state_uuid')"
)
MEMBERS = "SELECT member_state, member_id = @@server_uuid FROM performance_schema.replication_group_members"
# Waits until this node has applied what the cluster committed before, as each statement of its session does.
ANY_ROW = "SELECT version_num FROM alembic_version"

Ask = Callable[[str], Sequence[Any]]


class NodeUnfit(OperationalError):
    """An error of the driver's kind, so that it means the same as if a write had met it (app.failures)."""


def require_fit_node(cursor: Any, *, is_mariadb: bool) -> None:
    """Raises NodeUnfit on a node that is read-only, desynced, or not in the part of its cluster that goes on.

    One round trip, and of Group Replication one more; `cursor` is the driver's.
    """

    def ask(query: str) -> Sequence[Any]:
        cursor.execute(query)
        rows: Sequence[Any] = cursor.fetchall()
        return rows

    _require_fit(ask, is_mariadb=is_mariadb)


def look_at_node(connection: Connection) -> None:
    """The same of a connection that may be old, and that a read is answered; raises DBAPIError as well."""
    connection.exec_driver_sql(ANY_ROW).all()
    _require_fit(_asking(connection), is_mariadb=_is_mariadb(connection))


def unfitness(connection: Connection) -> str | None:
    """Why the node is not fit; None of one that is."""
    try:
        _require_fit(_asking(connection), is_mariadb=_is_mariadb(connection))
    except NodeUnfit as unfit:
        return str(unfit.args[1])
    return None


def cluster_of(connection: Connection) -> str | None:
    """The name that all nodes of its cluster have in common; None for a server of its own."""
    state = _state(_asking(connection), is_mariadb=_is_mariadb(connection))
    return state.get("wsrep_cluster_state_uuid") or state.get("group_replication_group_name") or None


def _asking(connection: Connection) -> Ask:
    return lambda query: connection.exec_driver_sql(query).all()


def _is_mariadb(connection: Connection) -> bool:
    return bool(getattr(connection.dialect, "is_mariadb", False))


def _state(ask: Ask, *, is_mariadb: bool) -> dict[str, str]:
    rows = ask(STATE.format(schema="information_schema" if is_mariadb else "performance_schema"))
    return {name: value for name, value in rows}  # noqa: C416 - dict() of rows has no type


def _require_fit(ask: Ask, *, is_mariadb: bool) -> None:
    state = _state(ask, is_mariadb=is_mariadb)
    if {state.get("read_only", "OFF"), state.get("super_read_only", "OFF")} != {"OFF"}:
        raise NodeUnfit(READ_ONLY, "the node is read-only")
    if state.get("wsrep_on") == "ON":
        if state.get("wsrep_cluster_status") != "Primary" or state.get("wsrep_ready") != "ON":
            raise NodeUnfit(NOT_IN_THE_CLUSTER, "the node is not ready, or not in the primary component")
        if state.get("wsrep_local_state_comment") != "Synced":
            raise NodeUnfit(NOT_IN_THE_CLUSTER, f"the node is {state.get('wsrep_local_state_comment')}")
    if state.get("group_replication_group_name"):
        _require_member(ask)


def _require_member(ask: Ask) -> None:
    """A member that was started and has not joined its group takes writes like any server, by itself."""
    try:
        members = [(state, bool(is_own)) for state, is_own in ask(MEMBERS)]
    except (OperationalError, DBAPIError) as error:
        original = error.orig if isinstance(error, DBAPIError) else error
        if original is None or original.args[0] != DENIED:
            raise
        raise NodeUnfit(
            NOT_IN_THE_CLUSTER,
            "whether the node is in its group cannot be seen without SELECT on"
            " performance_schema.replication_group_members",
        ) from None
    own = next((state for state, is_own in members if is_own), "OFFLINE")
    if own != "ONLINE":
        raise NodeUnfit(NOT_IN_THE_CLUSTER, f"the node is {own} in its group")
    if 2 * sum(state == "UNREACHABLE" for state, _ in members) >= len(members):
        raise NodeUnfit(NOT_IN_THE_CLUSTER, "the node is in the minority of its group")
