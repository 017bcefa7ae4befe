"""Which node a user's calls go to: always the same, agreed on by all, and another one while it is away."""

from collections import Counter
from typing import get_args

import pytest
from fastapi.params import Depends
from fastapi.routing import APIRoute, APIRouter

from app.db import Database
from app.devices.change_routes import router as changes
from app.devices.routes import router as devices
from app.events.routes import router as events
from app.http import DatabaseOfUser
from app.nodes import NOBODY, Node
from app.quotas.routes import router as quotas
from app.settings import load_settings
from app.users.routes import router as users
from tests.routing.conftest import Pair, port, port_of
from tests.services import ROOT_KEY

USERS = range(1, 201)
DATABASE_OF_USER = next(one for one in get_args(DatabaseOfUser) if isinstance(one, Depends)).dependency
HOSTS = ("db1:3306", "db2:3306", "db3:3306")


def assignment(db: Database) -> dict[int, str]:
    return {user: db.node_of(user).name for user in USERS}


def preferred(*hosts: str) -> dict[int, str]:
    settings = load_settings(
        database_url="mysql+pymysql://u:p@h/d", database_hosts=",".join(hosts), root_key=ROOT_KEY
    )
    nodes = [Node(settings, url) for url in settings.urls]
    return {user: max(nodes, key=lambda node: node.weight_of(user)).name for user in USERS}


def test_each_call_of_a_user_goes_to_the_node_that_the_user_prefers(pair: Pair) -> None:
    with pair.database() as db:
        for user in USERS[:30]:
            wanted = port_of(db.node_of(user).name)
            assert {db.of_user(user).transact(port) for _ in range(3)} == {wanted}
        assert {port_of(name) for name in assignment(db).values()} == {port_of(host) for host in pair.hosts}


def test_calls_of_no_user_have_one_node_for_all_replicas(pair: Pair) -> None:
    with pair.database() as one, pair.database(*reversed(pair.hosts)) as other:
        assert one.transact(port) == other.transact(port) == port_of(one.node_of(NOBODY).name)


def test_the_order_in_which_hosts_are_listed_decides_nothing() -> None:
    assert preferred(*HOSTS) == preferred(*reversed(HOSTS)) == preferred("DB2", "db3", "db1:3306")


def test_replicas_of_another_version_agree() -> None:
    """What the hash gives is part of what versions have in common while one replaces the other."""
    chosen = preferred(*HOSTS)
    numbers = "".join(chosen[user][2] for user in USERS[:12])
    assert numbers == "322332322212"


def test_users_are_spread_evenly_and_a_node_that_goes_moves_its_own_alone() -> None:
    with_all, with_two = preferred(*HOSTS), preferred(*HOSTS[:2])
    assert min(Counter(with_all.values()).values()) > len(USERS) / 5
    moved = {user for user in USERS if with_all[user] != with_two[user]}
    assert moved == {user for user in USERS if with_all[user] == HOSTS[2]}


def test_one_host_is_one_database_and_nothing_looks_at_it(pair: Pair) -> None:
    with pair.database(pair.hosts[1]) as db:
        assert db.of_user(1) is db
        assert db.transact(port) == port_of(pair.hosts[1]), "it stands in place of the URL's"


@pytest.mark.parametrize("router", [devices, changes, quotas, events, users])
def test_no_route_of_a_user_forgets_whose_call_it_is(router: APIRouter) -> None:
    for route in router.routes:
        assert isinstance(route, APIRoute)
        assert "{user_id}" in route.path
        assert DATABASE_OF_USER in {asked.call for asked in route.dependant.dependencies}, route.path
