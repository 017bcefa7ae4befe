"""Where deliveries may go: the forms of URLs, and the addresses that names may lead to."""

from ipaddress import ip_address

import pytest

from app.webhooks.addresses import is_public, parse_url

PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "93.184.216.34",
    "172.32.0.1",
    "100.128.0.1",
    "192.1.0.1",
    "223.255.255.254",
    "2606:4700:4700::1111",
    "2a00:1450:4001:81b::200e",
    "2001:4860:4860::8888",
    "2003::1",
]
NOT_PUBLIC = [
    *("0.0.0.0", "0.1.2.3", "255.255.255.255", "240.0.0.1"),  # noqa: S104 - nothing is bound
    *("10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.0.1"),
    *("127.0.0.1", "127.255.255.254", "169.254.0.1", "169.254.169.254"),
    *("100.64.0.1", "100.100.100.200", "100.127.255.255", "168.63.129.16"),
    *("192.0.0.1", "192.0.0.9", "192.0.0.10", "192.0.0.192", "192.88.99.1"),
    *("192.0.2.1", "198.51.100.1", "203.0.113.1", "198.18.0.1", "198.19.255.255"),
    *("224.0.0.1", "239.255.255.255"),
    *("::", "::1", "fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1", "fd00:ec2::254"),
    *("ff02::1", "ff0e::1", "100::1", "5f00::1", "4000::1"),
    *("::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "::ffff:0:127.0.0.1"),
    *("64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::7f00:1"),
    *("2002:7f00:1::1", "2002:808:808::1", "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2"),
    *("2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1", "3fff::1", "3fff:fff::1"),
    "2606:4700:4700::1111%eth0",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_one(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_what_may_lead_into_a_network_of_ours_is_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("https://example.com", "https://example.com/"),
        ("HTTPS://Example.COM/Hook?a=B", "https://example.com/Hook?a=B"),
        ("https://example.com:443/a", "https://example.com/a"),
        ("https://example.com:8443/a//b", "https://example.com:8443/a//b"),
        ("https://xn--4ca.example/%C3%A4?x=%20", "https://xn--4ca.example/%C3%A4?x=%20"),
        ("https://a_b.example.com/", "https://a_b.example.com/"),
        ("https://example.com/a@b:c", "https://example.com/a@b:c"),
        ("https://example.com?a", "https://example.com/?a"),
        ("https://1.1.1.1/", "https://1.1.1.1/"),
        ("https://[2606:4700:4700:0::1111]:444/", "https://[2606:4700:4700::1111]:444/"),
        ("https://1and1.example/", "https://1and1.example/"),
        ("https://example.com/" + "a" * 2028, "https://example.com/" + "a" * 2028),
    ],
)
def test_a_url_has_one_spelling(given: str, kept: str) -> None:
    assert parse_url(given).url == kept
    assert parse_url(kept).url == kept


REFUSED = [
    ("", "characters of URLs"),
    ("https://example.com/" + "a" * 2029, "2048"),
    *(
        (f"{scheme}example.com/", "https://")
        for scheme in ("http://", "ftp://", "//", "", "https:", "file:///")
    ),
    *((f"https://{user}@example.com/", "user name") for user in ("a", "a:b", "", ":", "example.org")),
    *(
        (f"https://example.com{rest}", "characters of URLs")
        for rest in ("/#a", "#", "\\a", "/ä", "/\x00", "/<", '/"')
    ),
    *(
        (url, "white space")
        for url in (
            *(" https://example.com/", "https://example.com/ ", "https://example.com/a b", " "),
            *("https://example.com/\n", "https://exa\tmple.com/", "https://example.com/\u00a0"),
        )
    ),
    *(
        (f"https://example.com{rest}", "two hexadecimal digits")
        for rest in ("/%zz", "/%", "/%2", "/a%2g", "?a=%", "/%25%%20")
    ),
    *(
        (f"https://example.com:{port}/", "port")
        for port in ("", "0", "65536", "-1", "+1", "a", "0x50", "80:80")
    ),
    *(
        (f"https://{host}/", "four decimal numbers")
        for host in (
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "127.1",
            "0177.0.0.1",
            "127.0.0.01",
            "1.2.3.4.5",
            "256.1.1.1",
            "0",
            "example.0x7f",
            "a.1",
        )
    ),
    *(
        (f"https://{host}/", "no name")
        for host in (
            "",
            ".",
            "example.com.",
            "127.0.0.1.",
            "a..b",
            ".a.b",
            "-a.example",
            "a-.example",
            "a" * 64 + ".example",
            "a." * 127 + "example",
            "%31.example",
            "exa%mple.com",
            "a*b.example",
        )
    ),
    *(
        (f"https://[{host}]/", "IPv6|zone|host")
        for host in ("", "1.1.1.1", "example.com", "fe80::1%25eth0", "::1::")
    ),
    ("https://[2606:4700:4700::1111/", "host"),
    ("https://2606:4700:4700::1111/", "port"),
    *(
        (f"https://{host}/", "public address")
        for host in (
            "localhost",
            "LOCALHOST",
            "metadata",
            "a.localhost",
            "localhost.localdomain",
            "metadata.google.internal",
            "Printer.LOCAL",
            "router.home.arpa",
            "127.0.0.1",
            "10.0.0.1",
            "169.254.169.254",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[fd00:ec2::254]",
            "[64:ff9b::7f00:1]",
        )
    ),
]


@pytest.mark.parametrize(("url", "says"), REFUSED)
def test_a_url_that_two_readers_may_take_for_two_places_is_refused(url: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_url(url)


def test_plain_http_and_private_addresses_are_each_allowed_by_a_setting_of_their_own() -> None:
    private, plain = "https://127.0.0.1:8443/", "http://example.com/"
    assert parse_url(private, allow_private=True).url == private
    for name in ("localhost", "a.localhost", "metadata.google.internal", "printer.local"):
        assert parse_url(f"https://{name}/", allow_private=True).host == name
    for name in ("localhost.example.com", "internal.example.com", "notlocal.com", "mylocalhost.com"):
        assert parse_url(f"https://{name}/").host == name
    assert parse_url(plain, allow_http=True).port == 80
    for url in (private, "http://127.0.0.1/"):
        with pytest.raises(ValueError, match="public"):
            parse_url(url, allow_http=True)
    with pytest.raises(ValueError, match="https"):
        parse_url(plain, allow_private=True)
    for odd in ("https://0x7f.1/", "https://a@localhost/", "https://[fe80::1%25eth0]/"):
        with pytest.raises(ValueError, match=r"decimal|user name|zone"):
            parse_url(odd, allow_private=True, allow_http=True)
