"""What a server says of itself, and whether calls are led to it."""

from collections.abc import Mapping

import pytest
from pymysql.err import OperationalError

from app.fitness import DENIED, MEMBERS, NodeUnfit, require_fit_node

GALERA = {
    "read_only": "OFF",
    "wsrep_on": "ON",
    "wsrep_ready": "ON",
    "wsrep_cluster_status": "Primary",
    "wsrep_local_state_comment": "Synced",
}
GROUP = {"read_only": "OFF", "super_read_only": "OFF", "group_replication_group_name": "a-group"}
ME, OTHER = 1, 0


class Said:
    """A driver's cursor over what a server answers. `members` is None where it does not let us see them."""

    def __init__(self, state: Mapping[str, str], members: list[tuple[str, int]] | None) -> None:
        self._state = state
        self._members = members
        self._rows: list[tuple[str, object]] = []

    def execute(self, query: str) -> None:
        if query != MEMBERS:
            self._rows = list(self._state.items())
        elif self._members is None:
            raise OperationalError(DENIED, "SELECT command denied")
        else:
            self._rows = list(self._members)

    def fetchall(self) -> list[tuple[str, object]]:
        return self._rows


@pytest.mark.parametrize(
    ("state", "members"),
    [
        ({"read_only": "OFF"}, None),
        (
            {"read_only": "OFF", "wsrep_on": "OFF", "wsrep_ready": "OFF", "group_replication_group_name": ""},
            None,
        ),
        (GALERA, None),
        (GROUP, [("ONLINE", ME)]),
        (GROUP, [("ONLINE", ME), ("ONLINE", OTHER), ("UNREACHABLE", OTHER)]),
        (GROUP, [("ONLINE", ME), ("RECOVERING", OTHER)]),
    ],
)
def test_a_node_that_takes_writes_and_keeps_up_is_fit(
    state: Mapping[str, str], members: list[tuple[str, int]] | None
) -> None:
    require_fit_node(Said(state, members), is_mariadb=False)


@pytest.mark.parametrize(
    ("state", "members", "number", "says"),
    [
        ({"read_only": "ON"}, None, 1290, "read-only"),
        ({"read_only": "OFF", "super_read_only": "ON"}, None, 1290, "read-only"),
        (GALERA | {"read_only": "ON"}, None, 1290, "read-only"),
        (GALERA | {"wsrep_cluster_status": "non-Primary"}, None, 1047, "not in the primary component"),
        (GALERA | {"wsrep_ready": "OFF"}, None, 1047, "not ready"),
        (GALERA | {"wsrep_local_state_comment": "Donor/Desynced"}, None, 1047, "Donor/Desynced"),
        (GALERA | {"wsrep_local_state_comment": "Joined"}, None, 1047, "Joined"),
        (GROUP, [("OFFLINE", ME)], 1047, "OFFLINE in its group"),
        (GROUP, [], 1047, "OFFLINE in its group"),
        (GROUP, [("RECOVERING", ME), ("ONLINE", OTHER)], 1047, "RECOVERING in its group"),
        (GROUP, [("ERROR", ME)], 1047, "ERROR in its group"),
        (GROUP, [("ONLINE", ME), ("UNREACHABLE", OTHER), ("UNREACHABLE", OTHER)], 1047, "in the minority"),
        (GROUP, [("ONLINE", ME), ("UNREACHABLE", OTHER)], 1047, "in the minority"),
        (GROUP, None, 1047, "cannot be seen without SELECT on performance_schema.replication_group_members"),
    ],
)
def test_any_other_is_not(
    state: Mapping[str, str], members: list[tuple[str, int]] | None, number: int, says: str
) -> None:
    with pytest.raises(NodeUnfit) as unfit:
        require_fit_node(Said(state, members), is_mariadb=False)
    assert unfit.value.args[0] == number
    assert says in unfit.value.args[1]
