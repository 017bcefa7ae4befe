"""What `CUPO_DATABASE_HOSTS` may be."""

import pytest

from app.settings import BadSettings, load_settings

URL = "mysql+pymysql://u:p@h:3307/d"
LIST = "is not a list of hosts such as db1:3306,db2:3306,db3"


@pytest.mark.parametrize(
    ("hosts", "found"),
    [
        ("db1:3306,db2", [("db1", 3306), ("db2", 3307)]),
        ("DB1.example, 10.0.0.2:33", [("db1.example", 3307), ("10.0.0.2", 33)]),
        ("[::1]:3306,[fe80::2]", [("::1", 3306), ("fe80::2", 3307)]),
        ("db1", [("db1", 3307)]),
    ],
)
def test_hosts_stand_in_place_of_the_url_s_and_take_its_port(
    hosts: str, found: list[tuple[str, int]]
) -> None:
    urls = load_settings(database_url=URL, database_hosts=hosts).urls
    assert [(url.host, url.port) for url in urls] == found
    assert {(url.username, url.password, url.database) for url in urls} == {("u", "p", "d")}


@pytest.mark.parametrize(
    ("hosts", "says"),
    [
        ("db1,,db2", LIST),
        ("db1 db2", LIST),
        ("db1:0", LIST),
        ("db1:65536", LIST),
        ("db1:port", LIST),
        ("u@db1", LIST),
        ("::1", LIST),
        ("db1,DB1", "names db1 twice"),
        ("db1:3307,db2,db1", "names db1 twice"),
    ],
)
def test_what_names_no_nodes_is_refused(hosts: str, says: str) -> None:
    with pytest.raises(BadSettings, match=rf"^CUPO_DATABASE_HOSTS: {says}"):
        load_settings(database_url=URL, database_hosts=hosts)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqlite:///cupo.db", "is of no use: CUPO_DATABASE_URL is a file"),
        (f"{URL}?unix_socket=/run/mysqld.sock", "is of no use: CUPO_DATABASE_URL leads to a socket"),
    ],
)
def test_hosts_beside_a_url_that_leads_to_no_host_are_refused(url: str, says: str) -> None:
    with pytest.raises(BadSettings, match=rf"^CUPO_DATABASE_HOSTS: {says}"):
        load_settings(database_url=url, database_hosts="db1,db2")


def test_migrations_go_to_the_host_of_their_own_url_or_to_the_first() -> None:
    own = "mysql+pymysql://m:p@migrations/d"
    with_own = load_settings(database_url=URL, database_hosts="db1,db2", migration_database_url=own)
    assert [url.host for url in with_own.of_migrations.urls] == ["migrations"]
    assert load_settings(database_url=URL, database_hosts="db1,db2").of_migrations.url.host == "db1"


def test_a_connection_may_take_less_long_where_there_is_another_node() -> None:
    for hosts, has_several in ((None, False), ("db1", False), ("db1,db2", True)):
        assert load_settings(database_url=URL, database_hosts=hosts).has_several_nodes is has_several
