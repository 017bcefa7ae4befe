"""Which of a real cluster's nodes calls are led to."""

from collections.abc import Callable, Iterator

import pytest

from app.db import Database
from app.errors import DatabaseUnavailable
from app.settings import load_settings
from loadtest.cluster import Cluster, Kind, Node
from tests.routing.conftest import wait_until
from tests.services import ROOT_KEY
from tests.use_cases import list_devices, register

pytestmark = [pytest.mark.cluster, pytest.mark.locking]
HEALTHY_SECONDS = 60


@pytest.fixture
def db(cluster: Cluster) -> Iterator[Database]:
    hosts = ",".join(address_of(node) for node in cluster.nodes)
    settings = load_settings(database_url=cluster.url(1), database_hosts=hosts, root_key=ROOT_KEY)
    made = Database(settings)
    yield made
    made.close()


def address_of(node: Node) -> str:
    return f"{node.host}:{node.port}"


def is_used(db: Database, user: int, node: Node) -> bool:
    return db.node_of(user).name == address_of(node)


def user_of(db: Database, node: Node, new_user: Callable[[], int]) -> int:
    """A new one that prefers this node."""
    return next(user for user in iter(new_user, None) if is_used(db, user, node))


def devices(db: Database, user: int) -> list[str]:
    found, _ = db.of_user(user).transact(list_devices, user, read_only=True)
    return sorted(device.device_id for device in found)


def test_users_of_a_node_that_is_cut_off_go_on_at_another_and_come_back(
    cluster: Cluster, db: Database, new_user: Callable[[], int]
) -> None:
    db.open_connections()
    cut_off = cluster.nodes[2]
    user = user_of(db, cut_off, new_user)
    assert db.of_user(user).transact(register, user, "before").created
    cluster.partition(cut_off.number)
    try:
        wait_until(lambda: not is_used(db, user, cut_off))
        wait_until(lambda: goes_through(db, user, "while"))
        assert devices(db, user) == ["before", "while"]
    finally:
        cluster.heal()
        cluster.wait_until_healthy(HEALTHY_SECONDS)
    wait_until(lambda: is_used(db, user, cut_off))
    assert devices(db, user) == ["before", "while"]


def goes_through(db: Database, user: int, device: str) -> bool:
    """The cluster answers nobody until it has agreed that a node is gone."""
    try:
        db.of_user(user).transact(register, user, device)
    except DatabaseUnavailable:
        return False
    return True


def test_a_node_that_is_set_aside_gets_no_call_though_it_takes_writes(
    cluster: Cluster, kind: Kind, db: Database, new_user: Callable[[], int]
) -> None:
    aside = cluster.nodes[1]
    user = user_of(db, aside, new_user)
    if kind == "galera":
        aside.run("SET GLOBAL wsrep_desync = ON")
    else:
        aside.run("STOP GROUP_REPLICATION", "SET GLOBAL super_read_only = OFF")
    try:
        wait_until(lambda: not is_used(db, user, aside))
        assert db.of_user(user).transact(register, user, "a").created
    finally:
        if kind == "galera":
            aside.run("SET GLOBAL wsrep_desync = OFF")
        cluster.wait_until_healthy(HEALTHY_SECONDS)
    wait_until(lambda: is_used(db, user, aside))
    assert devices(db, user) == ["a"]
