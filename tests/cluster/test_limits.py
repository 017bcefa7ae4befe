"""The limit on a real cluster: row locks do not cross its nodes."""

from collections.abc import Callable

import pytest

from app import sessions
from loadtest.cluster import Cluster
from tests.cluster.races import CALLERS, Nodes

pytestmark = [pytest.mark.cluster, pytest.mark.locking]

# Calls on a node that lags wait for it no longer than this.
HURRIED = {"lock_budget_seconds": 2, "lock_wait_seconds": 1}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("limit", [2, 5])
@pytest.mark.parametrize("known", [False, True], ids=["new", "known"])
def test_callers_on_all_nodes_get_exactly_the_slots_that_are_left_and_no_503(
    databases: Callable[..., Nodes],
    new_user: Callable[[], int],
    number_of_users: int,
    limit: int,
    known: bool,
) -> None:
    nodes = databases()
    for _ in range(number_of_users):
        user = new_user()
        if known:
            assert nodes.register(1, user, "first", limit) == "created"
        left = limit - known
        assert nodes.race(user, limit) == {"created": left, "limit": CALLERS - left}
        assert len(nodes.devices(3, user)) == limit


def test_the_same_race_passes_the_limit_where_the_lock_is_of_a_row_alone(
    databases: Callable[..., Nodes], new_user: Callable[[], int]
) -> None:
    """What these tests would say of a service that took its nodes for one server: that it breaks."""
    nodes = databases(multi_writer="off")
    users = [new_user() for _ in range(15)]
    for user in users:
        nodes.race(user, 2)
    assert max(len(nodes.devices(3, user)) for user in users) > 2


@pytest.mark.parametrize("waits", [True, False], ids=["waiting", "not-waiting"])
def test_the_limit_holds_on_a_node_that_does_not_know_of_the_last_device(
    cluster: Cluster,
    databases: Callable[..., Nodes],
    new_user: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
    waits: bool,
) -> None:
    """By the lock's write, which conflicts with the one that the node has not applied."""
    if not waits:
        monkeypatch.setattr(sessions, "SEE_ALL_COMMITTED", {})
    nodes = databases(**HURRIED)
    users = [new_user() for _ in range(3)]
    for user in users:
        assert nodes.register(2, user, "first", 2) == "created"
    with cluster.nodes[1].block_applier():
        for user in users:
            assert nodes.register(1, user, "last", 2) == "created"
        answers = nodes.races(users, 2, callers=9)
    assert answers["created"] == 0
    cluster.wait_until_healthy(60)
    for node in (1, 2, 3):
        assert [nodes.devices(node, user) for user in users] == [["first", "last"]] * 3
