"""Whether a node of a cluster is fit for calls: it takes writes, and keeps up with the other nodes."""

from typing import Any

from pymysql.err import OperationalError
from sqlalchemy.engine import Connection

# What a server says to a write by itself: one that is read-only, and a Galera node that has lost the others.
READ_ONLY = 1290
NOT_IN_THE_CLUSTER = 1047
STATE = (
    "SELECT LOWER(variable_name), variable_value FROM {schema}.global_variables WHERE LOWER(variable_name) IN"
    " ('read_only', 'super_read_only', 'wsrep_on', 'group_replication_group_name')"
    " UNION ALL SELECT LOWER(variable_name), variable_value FROM {schema}.global_status"
    " WHERE LOWER(variable_name) IN"
    " ('wsrep_ready', 'wsrep_cluster_status', 'wsrep_local_state_comment', 'wsrep_cluster_state_uuid')"
)
# Each waits until this node has applied what the cluster committed before, where its sessions are set up so.
ANY_ROW = "SELECT version_num FROM alembic_version"


class NodeUnfit(OperationalError):
    """An error of the driver's kind, so that it means the same as if a write had met it (app.failures)."""


def require_fit_node(cursor: Any, *, is_mariadb: bool) -> None:
    """Raises NodeUnfit on a node that is read-only, desynced or not in the primary component.

    One round trip; `cursor` is the driver's.
    """
    cursor.execute(_statement(is_mariadb=is_mariadb))
    _require_fit(dict(cursor.fetchall()))


def look_at_node(connection: Connection) -> None:
    """The same of a connection that may be old, and that a read is answered; raises DBAPIError as well."""
    connection.exec_driver_sql(ANY_ROW).all()
    _require_fit(_state_of(connection))


def unfitness(connection: Connection) -> str | None:
    """Why the node is not fit; None of one that is."""
    try:
        _require_fit(_state_of(connection))
    except NodeUnfit as unfit:
        return str(unfit.args[1])
    return None


def cluster_of(connection: Connection) -> str | None:
    """The name that all nodes of its cluster have in common; None for a server of its own."""
    state = _state_of(connection)
    return state.get("wsrep_cluster_state_uuid") or state.get("group_replication_group_name") or None


def _statement(*, is_mariadb: bool) -> str:
    return STATE.format(schema="information_schema" if is_mariadb else "performance_schema")


def _state_of(connection: Connection) -> dict[str, str]:
    is_mariadb = getattr(connection.dialect, "is_mariadb", False)
    rows = connection.exec_driver_sql(_statement(is_mariadb=is_mariadb))
    return {name: value for name, value in rows}  # noqa: C416 - dict() of rows has no type


def _require_fit(state: dict[str, str]) -> None:
    if {state.get("read_only", "OFF"), state.get("super_read_only", "OFF")} != {"OFF"}:
        raise NodeUnfit(READ_ONLY, "the node is read-only")
    if state.get("wsrep_on") != "ON":
        return
    if state.get("wsrep_cluster_status") != "Primary" or state.get("wsrep_ready") != "ON":
        raise NodeUnfit(NOT_IN_THE_CLUSTER, "the node is not ready, or not in the primary component")
    if state.get("wsrep_local_state_comment") != "Synced":
        raise NodeUnfit(NOT_IN_THE_CLUSTER, f"the node is {state.get('wsrep_local_state_comment')}")
