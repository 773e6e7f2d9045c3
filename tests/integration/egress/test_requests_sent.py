"""What leaves, byte for byte, and what never does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from hookline_sender.egress import AddressPolicy, TransportFailed
from tests.support import closed_port
from tests.support_zoo import PATIENCE, POLITE, TRANSPORTS, Case, Zoo, each_way, no_descriptor_left, ok, on_loop

if TYPE_CHECKING:
    from pathlib import Path

    from hookline_sender.egress.transport import Headers


def sent(transport: str, loop: str, *bodies: bytes, answer: bytes, headers: Headers = ()) -> list[bytes]:
    """The requests that arrive when those bodies are posted one after the other, each answered with `answer`."""

    async def go() -> None:
        used = TRANSPORTS[transport](AddressPolicy(allow_loopback_http=True))
        try:
            for body in bodies:
                deadline = asyncio.get_running_loop().time() + PATIENCE
                await used.post(f"{zoo.url}?shop=1", headers, body, deadline=deadline, destination="d")
        finally:
            await used.aclose()

    with no_descriptor_left(), Zoo(Case("", answer, ok(), again=answer)) as zoo:
        on_loop(loop, go)
        host = zoo.url.split("/")[2].encode()
    return [request.replace(host, b"HOST") for _, request in zoo.requests]


@each_way
@pytest.mark.parametrize("body", [b"", b"{}", bytes(range(256)) * 4096], ids=["empty", "small", "large"])
def test_a_request_is_these_lines_and_the_body(body: bytes, transport: str, loop: str) -> None:
    headers = [(b"x-key", b"a b"), (b"x-key", b"c")]
    [request] = sent(transport, loop, body, answer=POLITE, headers=headers)
    head, _, rest = request.partition(b"\r\n\r\n")
    first, *fields = head.split(b"\r\n")
    framing = [b"accept-encoding: identity", b"content-length: %d" % len(body), b"host: host"]
    assert first == b"POST /hook?shop=1 HTTP/1.1"
    assert sorted(field.lower() for field in fields) == [*framing, b"x-key: a b", b"x-key: c"]
    assert rest == body


@each_way
@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
@pytest.mark.parametrize("location", [b"/hook", b"http://169.254.169.254/latest", b"//other.example/", b""])
def test_no_redirect_is_followed(location: bytes, status: int, transport: str, loop: str) -> None:  # cases: A48 A49
    moved = b"HTTP/1.1 %d X\r\nlocation: %b\r\ncontent-length: 0\r\n\r\n" % (status, location)
    assert len(sent(transport, loop, b"{}", answer=moved, headers=[(b"x-api-key", b"secret")])) == 1


@each_way
def test_no_cookie_comes_back(transport: str, loop: str) -> None:  # cases: A47
    given = b"HTTP/1.1 200 X\r\nset-cookie: session=1; path=/\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    requests = sent(transport, loop, b"1", b"2", b"3", answer=given)
    assert [b"cookie" in request.lower() for request in requests] == [False] * 3


@each_way
def test_nothing_of_the_environment_is_used(
    transport: str, loop: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login a password b\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port()}")
    [request] = sent(transport, loop, b"{}", answer=POLITE)
    assert b"authorization" not in request.lower()


@each_way
@pytest.mark.parametrize(
    "header",
    [
        (b"", b"x"), (b"a b", b"x"), (b"a:", b"x"), (b"\xe4", b"x"), (b"x", b"a\r\nx-evil: 1"), (b"x", b"a\n"),
        (b"x", "–".encode()), (b"x", b" a"), (b"x", b"a" * 65_536), (b"Host", b"x"), (b"content-length", b"1"),
        (b"Transfer-Encoding", b"chunked"), (b"connection", b"close"), (b"expect", b"100-continue"),
        (b"upgrade", b"h2c"), (b"te", b"trailers"), (b"trailer", b"x"), (b"accept-encoding", b"gzip"),
    ],
)  # fmt: skip
def test_a_header_that_would_not_survive_is_refused(
    header: tuple[bytes, bytes], transport: str, loop: str
) -> None:  # cases: A53
    with pytest.raises(TransportFailed) as caught:
        sent(transport, loop, b"{}", answer=b"", headers=[header])
    assert (caught.value.kind, caught.value.sent) == ("header", False)
    assert "evil" not in str(caught.value)


@each_way
@pytest.mark.parametrize(
    "url",
    [
        "ftp://127.0.0.1/", "https://", "https://a..b/", "https://127.0.0.1:0/", "https://127.0.0.1:65536/",
        "https://user:pass@127.0.0.1/", "https://127.0.0.1/a b", "https://127.0.0.1/\r\nx: y", "https://127.1/",
        "https://2130706433/", "https://127.0.0.1/#fragment", "https://127.0.0.1\\@shop.example/", "http://shop.example/",
        "https://shop.example/" + "a" * 10_000,
    ],
)  # fmt: skip
def test_a_url_that_is_not_allowed_is_refused_unsent(url: str, transport: str, loop: str) -> None:  # cases: A54 A55 A57
    async def go() -> str:
        used = TRANSPORTS[transport](AddressPolicy(allow_loopback_http=True))
        with pytest.raises(TransportFailed) as caught:
            await used.post(url, [], b"", deadline=asyncio.get_running_loop().time() + PATIENCE, destination="d")
        await used.aclose()
        assert not caught.value.sent
        return caught.value.kind

    assert on_loop(loop, go) == "url"
