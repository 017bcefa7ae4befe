"""A network of namespaces for three nodes: a hub that all hang on, and this machine beside them.

Takes root. Nothing of it is seen outside but one interface and the names of the namespaces, all with the
network's own tag, and a subnet of 198.18.0.0/15, which RFC 2544 keeps for measurements.
"""

import dataclasses
import json
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from typing import Literal

NUMBERS = (1, 2, 3)
OneWay = Literal["in", "out"]

# An address of nobody: what is sent to it is lost without an error, as on a dead network.
NOWHERE = "02:00:00:00:00:00"
OWN_HOST = 254
POLL_SECONDS = 0.02


class ClusterError(Exception):
    """A cluster cannot be had or does not do as told; the text says what to do."""


class NoNamespaces(ClusterError):
    """This machine, container or account may make none."""


class NotInstalled(ClusterError):
    """A program that a cluster takes is missing; the text names its package."""


@dataclasses.dataclass(frozen=True)
class Network:
    """`tag` begins every name, `prefix` every address."""

    tag: str
    prefix: str

    def namespace(self, number: int) -> str:
        return f"{self.tag}-{number}"

    def address(self, number: int) -> str:
        return f"{self.prefix}.{number}"

    @property
    def subnet(self) -> str:
        return f"{self.prefix}.0/24"

    def make(self) -> None:
        """Raises NoNamespaces."""
        hub = f"{self.tag}-hub"
        try:
            _ip("netns", "add", hub)
        except ClusterError as error:
            raise NoNamespaces(
                f"{error}. A cluster takes root, on a machine or in a container (Docker: --privileged) that"
                " may make network namespaces"
            ) from error
        _in(hub, "link", "add", "bridge", "type", "bridge")
        _in(hub, "link", "set", "bridge", "up")
        _ip("link", "add", self.tag, "type", "veth", "peer", "name", "own", "netns", hub)
        _ip("addr", "add", f"{self.address(OWN_HOST)}/24", "dev", self.tag)
        _ip("link", "set", self.tag, "up")
        _in(hub, "link", "set", "own", "master", "bridge", "up")
        for number in NUMBERS:
            node = self.namespace(number)
            _ip("netns", "add", node)
            _in(node, "link", "set", "lo", "up")
            _in(hub, "link", "add", f"to-{number}", "type", "veth", "peer", "name", "eth0", "netns", node)
            _in(hub, "link", "set", f"to-{number}", "master", "bridge", "up")
            _in(node, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
            _in(node, "link", "set", "eth0", "up")

    def remove(self) -> None:
        """Everything of it that is there, also what half a `make` has left."""
        if any(link["ifname"] == self.tag for link in json.loads(_ip("-json", "link") or "[]")):
            _ip("link", "delete", self.tag)
        there = [entry["name"] for entry in json.loads(_ip("-json", "netns", "list") or "[]")]
        for name in (f"{self.tag}-hub", *map(self.namespace, NUMBERS)):
            if name in there:
                _ip("netns", "delete", name)

    def processes(self, number: int) -> list[int]:
        """What runs in the node's namespace."""
        return [int(word) for word in _ip("netns", "pids", self.namespace(number)).split()]

    def wait_until_empty(self, number: int, seconds: float) -> bool:
        """Polled: these are no children of ours. False if something still runs after `seconds`."""
        give_up_at = time.monotonic() + seconds
        while self.processes(number):
            if time.monotonic() > give_up_at:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def cut(self, number: int, one_way: OneWay | None = None) -> None:
        """Lose what the other nodes send to this one (`in`), what it sends to them (`out`), or both.

        This machine, where the service runs, reaches every node all the same.
        """
        for other in NUMBERS:
            if other != number:
                for sender, receiver in self._ways(number, other, one_way):
                    _in(
                        self.namespace(sender),
                        *("neigh", "replace", self.address(receiver), "lladdr", NOWHERE),
                        *("nud", "permanent", "dev", "eth0"),
                    )

    @staticmethod
    def _ways(number: int, other: int, one_way: OneWay | None) -> Iterator[tuple[int, int]]:
        if one_way != "in":
            yield number, other
        if one_way != "out":
            yield other, number

    def heal(self) -> None:
        for number in NUMBERS:
            _in(self.namespace(number), "neigh", "flush", "dev", "eth0", "nud", "permanent")


def new_network() -> Network:
    """Names and a subnet that nobody on this machine has; not made yet."""
    taken = _ip("-4", "-oneline", "addr")
    while True:
        third, fourth = secrets.choice((18, 19)), secrets.randbelow(256)
        prefix = f"198.{third}.{fourth}"
        if f"{prefix}." not in taken:
            return Network(f"cupo-{secrets.token_hex(3)}", prefix)


def _in(namespace: str, *words: str) -> str:
    return _ip("-netns", namespace, *words)


def _ip(*words: str) -> str:
    program = shutil.which("ip", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin")))
    if program is None:
        raise NotInstalled("no program ip here: install the package iproute2")
    ended = subprocess.run(  # noqa: S603 - our own words
        [program, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise ClusterError(f"`ip {' '.join(words)}` failed: {ended.stderr.strip()}")
    return ended.stdout
