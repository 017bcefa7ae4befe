"""What a node answers that has not applied what another has acknowledged: nothing from before."""

from collections.abc import Callable

import pytest

from app import sessions
from app.errors import Unavailable
from loadtest.cluster import Cluster
from tests.cluster.races import Nodes

pytestmark = [pytest.mark.cluster, pytest.mark.locking]

HURRIED = {"lock_budget_seconds": 2, "lock_wait_seconds": 1}


def full(nodes: Nodes, user: int) -> None:
    """The user has 2 of 2 devices, and every node knows it."""
    for device in ("kept", "revoked"):
        assert nodes.register(1, user, device, 2) == "created"
    assert nodes.devices(2, user) == ["kept", "revoked"]


def test_a_slot_that_one_node_has_freed_is_refused_by_no_other(
    cluster: Cluster, databases: Callable[..., Nodes], new_user: Callable[[], int]
) -> None:
    nodes, user = databases(**HURRIED), new_user()
    full(nodes, user)
    with cluster.nodes[1].block_applier():
        nodes.revoke(1, user, "revoked")
        assert nodes.register(2, user, "new", 2) in ("contention", "database_unavailable")
    nodes = databases()
    assert nodes.register(2, user, "new", 2) in ("created", "there")
    assert nodes.devices(3, user) == ["kept", "new"]


def test_a_device_that_one_node_has_revoked_is_listed_by_no_other(
    cluster: Cluster, databases: Callable[..., Nodes], new_user: Callable[[], int]
) -> None:
    nodes, user = databases(**HURRIED), new_user()
    full(nodes, user)
    with cluster.nodes[1].block_applier():
        nodes.revoke(1, user, "revoked")
        assert nodes.devices(3, user) == ["kept"]
        with pytest.raises(Unavailable):
            nodes.devices(2, user)
    assert databases().devices(2, user) == ["kept"]


def test_such_a_node_answers_from_before_where_its_sessions_do_not_wait(
    cluster: Cluster,
    databases: Callable[..., Nodes],
    new_user: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the two tests above would find without the protection: a false refusal and an old list."""
    monkeypatch.setattr(sessions, "SEE_ALL_COMMITTED", {})
    nodes, user = databases(**HURRIED), new_user()
    full(databases(), user)
    with cluster.nodes[1].block_applier():
        nodes.revoke(1, user, "revoked")
        assert nodes.register(2, user, "new", 2) == "limit"
        assert nodes.devices(2, user) == ["kept", "revoked"]


@pytest.fixture
def group(kind: str) -> None:
    if kind != "group-replication":
        pytest.skip("of MySQL's groups alone")


@pytest.mark.usefixtures("group")
def test_a_wait_that_the_server_gives_up_is_answered_by_503(
    cluster: Cluster, databases: Callable[..., Nodes], new_user: Callable[[], int]
) -> None:
    """Error 3797, here after the shortest `wait_timeout` that may be set; the service would wait longer."""
    nodes, user = databases(idle_connection_seconds=5, lock_budget_seconds=5), new_user()
    full(nodes, user)
    with cluster.nodes[1].block_applier():
        nodes.revoke(1, user, "revoked")
        assert nodes.register(2, user, "new", 2) == "database_unavailable"


@pytest.mark.usefixtures("group")
def test_a_member_in_offline_mode_is_answered_for_by_503_until_it_is_back(
    cluster: Cluster, databases: Callable[..., Nodes], new_user: Callable[[], int]
) -> None:
    """As its group leaves a member that it has expelled: sessions are ended, and new ones are refused."""
    nodes, user = databases(**HURRIED), new_user()
    assert nodes.register(3, user, "before", 2) == "created"
    cluster.nodes[2].run("SET GLOBAL offline_mode = ON")
    try:
        assert nodes.register(3, user, "meanwhile", 2) == "database_unavailable"
    finally:
        cluster.nodes[2].run("SET GLOBAL offline_mode = OFF")
    assert nodes.register(3, user, "after", 2) == "created"
