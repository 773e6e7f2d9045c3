"""Which URLs a request may go to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline_sender import UnsafeDestination
from hookline_sender.egress import AddressPolicy
from hookline_sender.egress.transport import TransportFailed, check_headers
from hookline_sender.egress.urls import allowed_url, parse_url


@pytest.mark.parametrize(
    ("url", "authority", "target"),
    [
        ("https://shop.example", "shop.example", "/"),
        ("HTTPS://Shop.EXAMPLE:443/Hook", "shop.example", "/Hook"),
        ("https://shop.example:8443/a%2Fb/../c?d=e&f=%20", "shop.example:8443", "/a%2Fb/../c?d=e&f=%20"),
        ("https://shop.example?only=query", "shop.example", "/?only=query"),
        ("https://shop.example/?", "shop.example", "/?"),
        ("https://shop.example./hook", "shop.example", "/hook"),
        ("https://a_b.internal-1.example/", "a_b.internal-1.example", "/"),
        ("https://bücher.example/", "xn--bcher-kva.example", "/"),
        ("https://BÜCHER.example/", "xn--bcher-kva.example", "/"),
        ("https://192.0.2.7/", "192.0.2.7", "/"),
        ("https://[2606:4700:4700:0:0:0:0:1111]:8443/h", "[2606:4700:4700::1111]:8443", "/h"),
        ("https://1.example/", "1.example", "/"),
    ],
)
def test_an_allowed_url_keeps_path_and_query_byte_for_byte(url: str, authority: str, target: str) -> None:  # cases: A64
    found = parse_url(url)
    assert (found.scheme, found.authority, found.target) == ("https", authority, target.encode())


@pytest.mark.parametrize(
    "url",
    [
        "", "https://", "https:///path", "https:shop.example", "//shop.example/", "shop.example/hook",
        "ftp://shop.example/", "file:///etc/passwd", "javascript:alert(1)", "unix:///run/app.sock",
        "https://.shop.example/", "https://shop..example/", f"https://{'a' * 64}.example/", "https://-a.example/",
        f"https://{'a.' * 127}example/", "https://\N{PILE OF POO}/", "https://xn--\N{PILE OF POO}/",
        "https://shop.example:0/", "https://shop.example:65536/", "https://shop.example:abc/",
        "https://shop.example:/", "https://shop.example:443:443/", "https://shop.example:999999999999/",
        "https://shop.example/a b", "https://shop.example/\t", "https://shop.example/\n", " https://shop.example/",
        "https://shop.example/\x00", "https://shop.example/\x7f", "https://sho\np.example/",
        "https://shop.example\\@evil.example/", "https://shop.example/\\", "https://shop.example/%", "https://a%41/",
        "https://shop.example/%zz", "https://shop.example/ü", "https://shop.example/#fragment", "https://a/#",
        "https://shop.example/" + "a" * 10_000, "https://shop.example/<script>", 'https://shop.example/"',
    ],
)  # fmt: skip
def test_a_malformed_url_is_refused(url: str) -> None:  # cases: A54 A64
    with pytest.raises(UnsafeDestination):
        parse_url(url, allow_loopback_http=True)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com:pass@169.254.169.254/", "http://example.com:80@10.0.0.5/", "https://a@10.0.0.1/x",
        "https://a:b@127.0.0.1:443/", "https://@shop.example/", "https://:@shop.example/",
    ],
)  # fmt: skip
def test_a_user_or_password_is_refused(url: str) -> None:  # cases: A55
    with pytest.raises(UnsafeDestination, match="user or password"):
        parse_url(url, allow_loopback_http=True)


@pytest.mark.parametrize(
    "host",
    [
        "2130706433", "0x7f000001", "0177.0.0.1", "017700000001", "127.1", "0x7f.1", "1", "2852039166", "127.0.0.1.",
        "256.1.1.1", "1.2.3.4.5", "0x", "a.0x7f", "127.0.0.0x1", "127.0.0.1..",
    ],
)  # fmt: skip
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_number_that_only_a_resolver_reads_as_an_address_is_refused(scheme: str, host: str) -> None:  # cases: A57
    with pytest.raises(UnsafeDestination):
        parse_url(f"{scheme}://{host}/", allow_loopback_http=True)


@pytest.mark.parametrize("host", ["[fe80::1%25eth0]", "[fe80::1%eth0]", "[::1", "[::g]", "[1.2.3.4]", "[]", "[v1.x]"])
def test_a_scope_or_a_broken_ipv6_address_is_refused(host: str) -> None:  # cases: A64
    with pytest.raises(UnsafeDestination):
        parse_url(f"https://{host}/")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "[::1]"])
def test_http_goes_to_a_literal_loopback_address_by_switch_only(host: str) -> None:
    assert parse_url(f"http://{host}:8000/x", allow_loopback_http=True).origin == f"http://{host}:8000"
    with pytest.raises(UnsafeDestination, match="use https"):
        parse_url(f"http://{host}:8000/x")


@pytest.mark.parametrize(
    "host",
    [
        "shop.example", "localhost", "LOCALHOST.", "foo.localhost", "localtest.me", "7f000001.nip.io", "10.0.0.1",
        "0.0.0.0", "169.254.169.254",  # noqa: S104
        "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::7f00:1]",
    ],
)  # fmt: skip
def test_http_goes_to_nothing_else(host: str) -> None:  # cases: A58 A63
    with pytest.raises(UnsafeDestination, match="use https"):
        parse_url(f"http://{host}/", allow_loopback_http=True)


HOSTILE_HOSTS = [
    # private, loopback, link-local, metadata
    "127.0.0.1", "127.8.9.10", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254",  # noqa: S104
    "168.63.129.16", "100.100.100.200", "192.0.0.192", "198.18.0.1", "192.0.2.1", "192.88.99.1", "224.0.0.1",
    "240.0.0.1", "255.255.255.255", "localhost", "LOCALHOST.", "a.localhost", "LocalHost",
    # the same, as only a resolver would read them
    "2130706433", "0x7f000001", "0177.0.0.1", "017700000001", "127.1", "127.0.1", "0x7f.1", "0x7f.0.0.0x1", "1", "0",
    "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "127.0.0.1..", "00000177.1", "127.000.000.001",
    "\N{FULLWIDTH DIGIT ONE}27.0.0.1", "127\N{IDEOGRAPHIC FULL STOP}0\N{IDEOGRAPHIC FULL STOP}0.1", "①②⑦.0.0.1",
    "\N{CIRCLED LATIN SMALL LETTER L}ocalhost",
    # IPv6, and IPv4 inside it
    "[::]", "[::1]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[::7f00:1]",
    "[::ffff:169.254.169.254]", "[::169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b::10.0.0.1]", "[64:ff9b:1::1]",
    "[2002:7f00:1::1]", "[2001:0:4136:e378:8000:63bf:3fff:fdd2]", "[fec0::1]", "[fe80::1]", "[fe81::1]", "[fc00::1]",
    "[fd00:ec2::254]", "[ff02::1]", "[2001:db8::1]", "[3fff::1]", "[5f00::1]", "[fe80::1%25eth0]", "[::1%lo]", "[::1]x",
    # other readings of where the host is
    "shop.example@127.0.0.1", "shop.example:443@10.0.0.1", "127.0.0.1\\@shop.example", "shop.example\\.127.0.0.1",
    "127.0.0.1#shop.example", "127.0.0.1%00.shop.example", "127.0.0.1%2f@shop.example", "shop.example\t127.0.0.1",
    "shop.example:22", "shop.example:25", "shop.example:6667",
]  # fmt: skip


@pytest.mark.parametrize("host", HOSTILE_HOSTS)
def test_a_url_into_the_house_is_refused_unshown(host: str) -> None:  # cases: A55 A57 A58 A63
    with pytest.raises(UnsafeDestination) as caught:
        allowed_url(f"https://{host}/latest/meta-data", AddressPolicy())
    assert (host in str(caught.value), "meta-data" in str(caught.value)) == (False, False) or len(host) < 3


@pytest.mark.parametrize(
    "url",
    [
        "https://shop.example", "https://shop.example/hooks/1?a=b&c=%2F", "https://SHOP.example:443/", "https://1.1.1.1/",
        "https://[2606:4700:4700::1111]/", "https://[2606:4700:4700::1111]:8443/h", "https://[::ffff:1.1.1.1]/",
        "https://bücher.example/", "https://xn--bcher-kva.example/", "https://例え.example/ping", "https://shop.example./h",
        "https://a_b.shop.example/", "https://127.0.0.1.nip.example/", "https://localhost.example/",
        "https://notlocalhost/", "https://shop.example:8443/", "https://shop.example:6379/", "https://1a.example/",
        "https://shop.example/" + "a" * 2000, "https://shop.example/a/../b//c;d=e,f", "https://shop.example?q=1",
    ],
)  # fmt: skip
def test_a_url_of_the_public_internet_is_allowed(url: str) -> None:  # cases: A63 A64
    assert allowed_url(url, AddressPolicy()).scheme == "https"


def test_a_url_follows_what_the_deployment_allows() -> None:
    inside = AddressPolicy(("10.1.0.0/16",), ports=frozenset({8443}))
    assert allowed_url("https://10.1.2.3:8443/", inside).host == "10.1.2.3"
    with pytest.raises(UnsafeDestination, match="HOOKLINE_DESTINATION_PORTS"):
        allowed_url("https://10.1.2.3/", inside)
    with pytest.raises(UnsafeDestination, match="HOOKLINE_ALLOW_ADDRESSES"):
        allowed_url("https://10.2.2.3:8443/", inside)
    assert allowed_url("https://localhost/", AddressPolicy(allow_loopback_http=True)).host == "localhost"


@given(st.text(max_size=80) | st.builds("https://{}".format, st.text(max_size=60)))
def test_any_text_is_a_url_or_is_refused_unshown(text: str) -> None:
    try:
        found = parse_url(text, allow_loopback_http=True)
    except UnsafeDestination as refused:
        shown = str(refused)
    else:
        shown = ""
        assert (found.origin.isascii(), found.target[:1]) == (True, b"/")
    assert len(text) < 30 or text not in shown


def test_a_url_shows_its_origin_only() -> None:
    found = parse_url("https://shop.example/hook?token=hush")
    assert "hush" not in repr(found)
    assert found.origin == "https://shop.example"


@pytest.mark.parametrize(
    "header",
    [
        (b"", b"x"), (b"a b", b"x"), (b"a:", b"x"), (b"a\r\n", b"x"), ("é".encode(), b"x"), (b"a" * 129, b"x"),
        (b"x", b"tok\n"), (b"x", b"a\r\nX-Evil: 1"), (b"x", b" a"), (b"x", b"a "), (b"x", "–".encode()),
        (b"x", b"a\x00"), (b"x", b"a\tb"), (b"x", b"a" * 65_536),
        (b"Host", b"x"), (b"HOST", b"x"), (b"Content-Length", b"0"), (b"transfer-encoding", b"chunked"),
        (b"connection", b"close"), (b"expect", b"100-continue"), (b"upgrade", b"h2c"), (b"te", b"trailers"),
        (b"trailer", b"x"), (b"accept-encoding", b"gzip"),
    ],
)  # fmt: skip
def test_a_header_that_could_split_a_request_is_refused_unshown(header: tuple[bytes, bytes]) -> None:  # cases: A53
    with pytest.raises(TransportFailed) as caught:
        check_headers([(b"x-fine", b"a b"), header])
    assert caught.value.kind == "header"
    assert "Evil" not in str(caught.value)


def test_an_ordinary_header_passes() -> None:
    check_headers([(b"x-api-key", b"a b"), (b"X_y", b""), (b"x", b"!~")])
