"""Which URLs a request may go to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline_sender import UnsafeDestination
from hookline_sender.egress.transport import TransportFailed, check_headers
from hookline_sender.egress.urls import parse_url


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
