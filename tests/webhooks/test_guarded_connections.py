"""Connections go to the address that was judged, to the name that was meant, and nowhere else."""

import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from app.webhooks import connections as connections_module
from app.webhooks import deliver as deliver_module
from app.webhooks.connections import Address, Connections
from app.webhooks.deliver import Attempt, deliver
from loadtest.ports import LOOPBACK
from tests.webhooks.certificates import Authority, new_authority
from tests.webhooks.receivers import Receiver, answer, answering, receiving, trickling
from tests.webhooks.test_delivering import delivery_to

NAME = "hooks.example.com"
URL = f"https://{NAME}/hook"
PUBLIC, OTHER_PUBLIC = "93.184.216.34", "2606:4700:4700::1111"
METADATA = "169.254.169.254"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("certificates"))


class Internet:
    """Names and what they lead to, look-up by look-up; public addresses lead to `receiver`.

    `connected` are all addresses that a connection was made to, or tried.
    """

    def __init__(self, receiver: Receiver, *answers: list[str]) -> None:
        self.receiver = receiver
        self.answers = list(answers)
        self.asked: list[str] = []
        self.connected: list[str] = []

    def look_up(self, host: str, port: int) -> list[Address]:
        self.asked.append(host)
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [(socket.AF_INET, (address, port)) for address in found]


@pytest.fixture
def internet(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Internet]:
    def make(receiver: Receiver, *answers: list[str]) -> Internet:
        made = Internet(receiver, *answers)
        connect = connections_module._Socket.connect  # noqa: SLF001 - the route to the internet is its

        def route(sock: Any, address: Any) -> None:
            made.connected.append(address[0])
            connect(sock, (LOOPBACK, receiver.port))

        monkeypatch.setattr(connections_module._Socket, "connect", route)  # noqa: SLF001 - likewise
        return made

    return make


@pytest.fixture
def attempt_at(authority: Authority) -> Iterator[Callable[..., Attempt]]:
    made: list[Connections] = []

    def attempt(internet: Internet, url: str = URL, **policy: Any) -> Attempt:
        made.append(Connections(look_up=internet.look_up, tls=authority.trusting(), **policy))
        return deliver(made[-1], delivery_to(url))

    yield attempt
    for connections in made:
        connections.close()


@pytest.fixture
def receiver(authority: Authority) -> Iterator[Receiver]:
    """A receiver that proves to be NAME."""
    with receiving(tls=authority.server(NAME)) as running:
        yield running


Attempts = Callable[..., Attempt]
Route = Callable[..., Internet]


def test_a_receiver_that_proves_its_name_is_sent_to_by_one_look_up(
    receiver: Receiver, internet: Route, attempt_at: Attempts
) -> None:
    world = internet(receiver, [PUBLIC])
    attempt = attempt_at(world)
    assert (attempt.outcome, attempt.error) == ("delivered", None)
    assert (world.asked, world.connected) == ([NAME], [PUBLIC])
    (received,) = receiver.received
    assert received.headers["host"] == NAME


@pytest.mark.parametrize(
    "inside", [LOOPBACK, METADATA, "10.0.0.1", "100.64.0.1", "::1", "fd00:ec2::254", "::ffff:127.0.0.1"]
)
def test_a_name_that_leads_inside_is_connected_to_by_nobody(
    receiver: Receiver, internet: Route, attempt_at: Attempts, inside: str
) -> None:
    for found in ([inside], [PUBLIC, inside], [inside, PUBLIC]):
        world = internet(receiver, found)
        attempt = attempt_at(world)
        assert (attempt.outcome, attempt.status) == ("failed", None)
        assert attempt.error == "its name leads to an address that is not public"
        assert world.connected == []
    assert receiver.connections == 0


def test_a_name_that_leads_elsewhere_at_the_second_look_up_gets_no_second_look_up(
    receiver: Receiver, internet: Route, attempt_at: Attempts
) -> None:
    """DNS rebinding: a public address for whoever judges, one of ours for whoever connects."""
    world = internet(receiver, [PUBLIC], [LOOPBACK])
    assert attempt_at(world).outcome == "delivered"
    assert world.connected == [PUBLIC]


def test_a_name_that_leads_inside_later_is_judged_again_at_each_connection(
    receiver: Receiver, internet: Route, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections_module, "MOST_IDLE_SECONDS", 0)
    world = internet(receiver, [PUBLIC], [LOOPBACK])
    connections = Connections(look_up=world.look_up, tls=authority.trusting())
    outcomes = [deliver(connections, delivery_to(URL)).outcome for _ in range(2)]
    connections.close()
    assert outcomes == ["delivered", "failed"]
    assert world.connected == [PUBLIC]


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1/",
        "https://127.0.0.1/",
        "https://169.254.169.254/latest/meta-data/",
        "//localhost/",
        "/inside",
    ],
)
def test_a_redirect_leads_nowhere(
    authority: Authority, internet: Route, attempt_at: Attempts, location: str
) -> None:
    redirect = answering(answer(307, b"", f"Location: {location}"))
    with receiving(redirect, tls=authority.server(NAME)) as receiver:
        world = internet(receiver, [PUBLIC])
        assert attempt_at(world).status == 307
    assert (world.asked, world.connected) == ([NAME], [PUBLIC])
    assert len(receiver.received) == 1


def test_the_next_address_is_tried_where_the_first_is_not_answered(
    receiver: Receiver, internet: Route, attempt_at: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = internet(receiver, [PUBLIC, "1.1.1.1"])
    route = connections_module._Socket.connect  # noqa: SLF001 - likewise

    def refuse_the_first(sock: Any, address: Any) -> None:
        if address[0] == PUBLIC:
            raise ConnectionRefusedError
        route(sock, address)

    monkeypatch.setattr(connections_module._Socket, "connect", refuse_the_first)  # noqa: SLF001 - likewise
    assert attempt_at(world).outcome == "delivered"
    assert world.connected == ["1.1.1.1"]


def test_who_proves_to_be_somebody_else_gets_nothing(
    authority: Authority, internet: Route, attempt_at: Attempts
) -> None:
    with receiving(tls=authority.server("other.example.com")) as receiver:
        attempt = attempt_at(internet(receiver, [PUBLIC]))
    assert attempt.outcome == "failed"
    assert "certificate is not valid: Hostname mismatch" in (attempt.error or "")
    assert receiver.received == []


def test_who_is_vouched_for_by_nobody_gets_nothing(receiver: Receiver, internet: Route) -> None:
    """By the certificates of the machine, which do not know the tests' authority."""
    world = internet(receiver, [PUBLIC])
    connections = Connections(look_up=world.look_up)
    attempt = deliver(connections, delivery_to(URL))
    assert attempt.outcome == "failed"
    assert "certificate is not valid" in (attempt.error or "")
    assert receiver.received == []


def test_the_name_is_told_in_the_handshake(
    authority: Authority, internet: Route, attempt_at: Attempts
) -> None:
    told: list[str | None] = []
    tls = authority.server(NAME)
    tls.sni_callback = lambda _sock, name, _context: told.append(name)
    with receiving(tls=tls) as receiver:
        assert attempt_at(internet(receiver, [PUBLIC])).outcome == "delivered"
    assert told == [NAME]


def test_an_old_tls_is_refused(authority: Authority, internet: Route, attempt_at: Attempts) -> None:
    tls = authority.server(NAME)
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        tls.minimum_version, tls.maximum_version = ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_1
    with receiving(tls=tls) as receiver:
        attempt = attempt_at(internet(receiver, [PUBLIC]))
    assert attempt.outcome == "failed"
    assert receiver.received == []


@pytest.mark.parametrize(
    "behaviour",
    [
        lambda receiver, _: receiver.pause(60),
        trickling(b"\x16\x03\x03\x40\x00", b"\x02"),
        trickling(b"", b"\x16\x03\x03\x00\x00"[:1]),
    ],
    ids=["silence", "trickling record", "trickling head"],
)
def test_a_handshake_that_does_not_come_to_an_end_costs_no_more_than_the_time_of_an_attempt(
    internet: Route, attempt_at: Attempts, monkeypatch: pytest.MonkeyPatch, behaviour: Any
) -> None:
    monkeypatch.setattr(deliver_module, "ATTEMPT_SECONDS", 0.5)
    with receiving(behaviour) as receiver:
        attempt = attempt_at(internet(receiver, [PUBLIC]))
    assert attempt.outcome == "failed"
    assert attempt.duration_seconds < 5


def test_a_tls_receiver_that_trickles_its_answer_costs_no_more_than_the_time_of_an_attempt(
    authority: Authority, internet: Route, attempt_at: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver_module, "ATTEMPT_SECONDS", 0.5)
    with receiving(trickling(b"HTTP/1.1 ", b"2"), tls=authority.server(NAME)) as receiver:
        attempt = attempt_at(internet(receiver, [PUBLIC]))
    assert (attempt.outcome, attempt.error) == ("failed", "no answer within 0.5 s")
    assert attempt.duration_seconds < 5


def test_a_url_that_was_allowed_once_is_judged_by_the_rules_of_now(
    receiver: Receiver, internet: Route, attempt_at: Attempts
) -> None:
    world = internet(receiver, [PUBLIC])
    for url in (f"http://{NAME}/", f"https://{LOOPBACK}/", "https://localhost/"):
        attempt = attempt_at(world, url)
        assert attempt.outcome == "failed"
        assert (attempt.error or "").startswith("its URL must ")
    assert (world.asked, world.connected) == ([], [])


def test_plain_http_where_it_is_allowed_still_leads_to_public_addresses_only(
    internet: Route, attempt_at: Attempts
) -> None:
    with receiving() as receiver:
        world = internet(receiver, [PUBLIC], [LOOPBACK])
        assert attempt_at(world, f"http://{NAME}/", allow_http=True).outcome == "delivered"
        assert attempt_at(world, f"http://{NAME}/", allow_http=True).outcome == "failed"
    assert world.connected == [PUBLIC]


def test_a_connection_to_one_name_is_not_used_for_another_on_the_same_machine(
    receiver: Receiver, internet: Route, authority: Authority
) -> None:
    world = internet(receiver, [PUBLIC])
    connections = Connections(look_up=world.look_up, tls=authority.trusting())
    assert deliver(connections, delivery_to(URL)).outcome == "delivered"
    assert deliver(connections, delivery_to("https://other.example.com/")).outcome == "failed"
    assert deliver(connections, delivery_to(URL)).outcome == "delivered"
    connections.close()
    assert world.asked == [NAME, "other.example.com"]
