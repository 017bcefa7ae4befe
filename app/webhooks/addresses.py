"""Where deliveries may go: which URLs, and which addresses their names may lead to."""

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

MOST_URL_CHARACTERS = 2_048

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_DEFAULT_PORTS = {"https": 443, "http": 80}
# RFC 3986 has these and no others; a space or a backslash is read differently from parser to parser.
_CHARACTERS = re.compile(r"[A-Za-z0-9\-._~:/?\[\]@!$&'()*+,;=%]+")
_NAME = re.compile(
    r"(?=.{1,253}$)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
)
# What resolvers take for a number: the last label of a decimal, octal or hexadecimal spelling of an address.
_NUMERIC = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")

# Set apart for one machine or one network (RFC 6761, RFC 6762, RFC 8375, ICANN's .internal).
_LOCAL_DOMAINS = (".localhost", ".localdomain", ".local", ".internal", ".home.arpa")

# Beside what `is_global` knows, of which Python 3.11 and 3.13 know different parts.
_NEVER_IN_IPV4 = [
    ipaddress.IPv4Network(network)
    for network in (
        "100.64.0.0/10",  # carrier-grade NAT; the metadata service of Alibaba Cloud
        "168.63.129.16/32",  # the host of each machine of Azure, by an address that is otherwise public
        "192.0.0.0/24",  # protocol assignments; the metadata service of Oracle Cloud
        "192.88.99.0/24",  # relays of 6to4
        "198.18.0.0/15",  # benchmarks
        "224.0.0.0/3",  # multicast, reserved, broadcast
    )
]
_PUBLIC_IPV6 = ipaddress.IPv6Network("2000::/3")  # all that is given out; NAT64 and mapped IPv4 lie outside
_NEVER_IN_IPV6 = [
    ipaddress.IPv6Network(network)
    for network in (
        "2001::/23",  # Teredo, which has an IPv4 address inside, ORCHID, benchmarks
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4, which has an IPv4 address inside
        "3fff::/20",  # documentation
    )
]


@dataclass(frozen=True, slots=True)
class Target:
    """Where a URL leads: `path` has the query in it. `host` is a name, or an address without brackets."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def origin(self) -> tuple[str, str, int]:
        """What a connection is to."""
        return self.scheme, self.host, self.port

    @property
    def default_port(self) -> int:
        return _DEFAULT_PORTS[self.scheme]

    @property
    def address(self) -> IpAddress | None:
        """The address, where the URL names one and no name."""
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None

    @property
    def url(self) -> str:
        """The one spelling of it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == self.default_port else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"


def parse_url(url: str, *, allow_http: bool = False, allow_private: bool = False) -> Target:
    """The URL's target; ValueError, of a text for people, where no delivery may go there.

    A name is looked up, and what it leads to judged, each time that it is connected to: see `is_public`.
    """
    if len(url) > MOST_URL_CHARACTERS:
        raise ValueError(f"must have at most {MOST_URL_CHARACTERS} characters, not {len(url)}")
    if re.search(r"\s", url):
        raise ValueError("must have no white space, nor any before or after it")
    if not _CHARACTERS.fullmatch(url):
        raise ValueError(
            "must have no fragment and only characters of URLs; write ä.example as xn--4ca.example"
        )
    scheme, _, rest = url.partition("://")
    if scheme.lower() not in ({"https", "http"} if allow_http else {"https"}):
        raise ValueError("must begin with https://")
    try:
        parts = urlsplit(f"{scheme.lower()}://{rest}")
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        raise ValueError("is not a URL: its host or port cannot be read") from None
    if "@" in parts.netloc:
        raise ValueError("must have no user name and no password")
    if port == 0 or parts.netloc.endswith(":"):
        raise ValueError("must have a port of 1 to 65535, or none")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if re.search(r"%(?![0-9A-Fa-f]{2})", path):
        raise ValueError("has a % without two hexadecimal digits behind it; write %25 for the sign itself")
    target = Target(
        parts.scheme, _host(host, is_literal="[" in parts.netloc), port or _DEFAULT_PORTS[parts.scheme], path
    )
    if not allow_private:
        _require_public(target)
    return target


def _host(host: str, *, is_literal: bool) -> str:
    """The host as it is connected to; nothing that one parser takes for a name and another for an address."""
    if is_literal:
        if "%" in host:
            raise ValueError("must name no zone: it means nothing on another machine")
        try:
            return str(ipaddress.IPv6Address(host))
        except ValueError:
            raise ValueError("has brackets around what is no IPv6 address") from None
    if _NUMERIC.fullmatch(host):
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise ValueError("must spell an IPv4 address as four decimal numbers") from None
    if not _NAME.fullmatch(host):
        raise ValueError("has a host that is no name of a machine; it must not end in a dot")
    return host


def _require_public(target: Target) -> None:
    if target.address is not None and not is_public(target.address):
        raise ValueError("must lead to a public address")
    if target.address is None and "." not in target.host:
        raise ValueError("must lead to a public address: a name without a dot is one of a local network")
    if target.host.endswith(_LOCAL_DOMAINS):
        raise ValueError(
            "must lead to a public address: names that end in .localhost, .local, .internal, .localdomain or "
            ".home.arpa are of a local network"
        )


def is_public(address: IpAddress) -> bool:
    """Whether everybody on the internet reaches the same machine by it.

    Not so: private, loopback, link-local, metadata services, shared, documentation, benchmarks, multicast,
    reserved (IANA's registries of special-purpose addresses, RFC 6890), and whatever IPv6 wraps an IPv4
    address in, since the network may unwrap it.
    """
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not any(address in network for network in _NEVER_IN_IPV4)
    return (
        address.is_global
        and address.scope_id is None
        and address in _PUBLIC_IPV6
        and not any(address in network for network in _NEVER_IN_IPV6)
    )
