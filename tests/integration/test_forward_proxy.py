"""https through a forward proxy that the operator names."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from hookline_sender import InvalidDeployment
from hookline_sender.egress import AddressPolicy, FastTransport, HttpxTransport
from hookline_sender.engine.records import Delivered, Retry
from tests.support import closed_port, run
from tests.support_egress import certificate, endpoint, send, status

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator
    from pathlib import Path

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


@dataclass
class Tunnels:
    """What a proxy was asked for: whole heads of requests."""

    url: str = ""
    heads: list[str] = field(default_factory=list)


@asynccontextmanager
async def forward_proxy(answer: bytes = ESTABLISHED) -> AsyncIterator[Tunnels]:
    """A proxy that answers like this; after a 200 it connects to loopback, whatever name it was asked for."""
    seen = Tunnels()
    serving: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.current_task())
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            seen.heads.append(head)
            port = int(head.split(" ")[1].rpartition(":")[2])
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(answer)
            await asyncio.gather(_pipe(reader, there_writer), _pipe(there_reader, writer))
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    seen.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield seen
    for each in serving:
        if each is not None:
            each.cancel()
    await asyncio.gather(*(each for each in serving if each), return_exceptions=True)


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
    finally:
        writer.transport.abort()


@asynccontextmanager
async def through(
    proxy: str, trust: ssl.SSLContext | None = None, policy: AddressPolicy | None = None
) -> AsyncIterator[HttpxTransport]:
    made = HttpxTransport(policy, proxy=proxy, ssl_context=trust)
    yield made
    await made.aclose()


def at(url: str, host: str) -> str:
    return url.replace("localhost", host)


def test_the_proxy_opens_a_tunnel_and_sees_nothing_of_the_delivery(tmp_path: Path) -> None:
    async def go() -> None:
        tls, trust = certificate(tmp_path, "shop.example")
        async with endpoint(status(200), tls=tls) as there, forward_proxy() as proxy, through(proxy.url, trust) as used:
            url = at(there.url, "shop.example")  # a name that resolves nowhere but at the proxy
            for _ in range(2):
                assert isinstance(await send(url, transport=used), Delivered)
            authority = url.split("/")[2]
            assert proxy.heads == [f"CONNECT {authority} HTTP/1.1\r\nhost: {authority}\r\n\r\n"]
            assert (there.requests[0].headers["host"], there.connections) == (authority, 1)

    run(go())


def test_credentials_go_to_the_proxy_only(tmp_path: Path) -> None:
    async def go() -> None:
        tls, trust = certificate(tmp_path, "shop.example")
        async with endpoint(status(200), tls=tls) as there, forward_proxy() as proxy:
            url = proxy.url.replace("//", "//egress:p%40ss@")
            async with through(url, trust) as used:
                await send(at(there.url, "shop.example"), transport=used)
            assert "\r\nproxy-authorization: Basic ZWdyZXNzOnBAc3M=\r\n" in proxy.heads[0]
            assert "proxy-authorization" not in there.requests[0].headers

    run(go())


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"HTTP/1.1 407 No\r\ncontent-length: 0\r\n\r\n", "connect_refused"),
        (b"HTTP/1.1 502 No\r\ncontent-length: 4\r\n\r\nhush", "connect_refused"),
        (b"", "connect_refused"),
        (b"SSH-2.0-x\r\n", "connect_refused"),
        (b"HTTP/1.1 200 X\r\nx: " + b"a" * 20_000 + b"\r\n\r\n", "connect_refused"),
        (ESTABLISHED + b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "protocol_error"),
    ],
)
def test_a_proxy_that_does_not_just_connect_ends_the_attempt(answer: bytes, code: str) -> None:
    async def go() -> None:
        async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            writer.close()

        server = await asyncio.start_server(close, "127.0.0.1", 0)
        proxy = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, through(proxy) as used:
            assert isinstance(outcome := await send("https://shop.example/", transport=used), Retry)
            assert (outcome.code, outcome.status) == (code, 0)

    run(go())


def test_a_proxy_that_is_silent_or_away_ends_the_attempt() -> None:
    async def go() -> None:
        async def nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            await reader.read()
            writer.transport.abort()

        server = await asyncio.start_server(nothing, "127.0.0.1", 0)
        proxy = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, through(proxy) as used, through(f"http://127.0.0.1:{closed_port()}") as away:
            silent = await send("https://shop.example/", transport=used, timeout=0.2)
            gone = await send("https://shop.example/", transport=away)
            assert [each.code for each in (silent, gone) if isinstance(each, Retry)] == [
                "timeout_connect",
                "connect_refused",
            ]

    run(go())


def test_the_certificate_is_the_destinations(tmp_path: Path) -> None:
    async def go() -> None:
        tls, trust = certificate(tmp_path, "other.example")
        async with endpoint(status(200), tls=tls) as there, forward_proxy() as proxy, through(proxy.url, trust) as used:
            assert isinstance(outcome := await send(at(there.url, "shop.example"), transport=used), Retry)
            assert (outcome.code, len(proxy.heads), there.requests) == ("tls_failed", 1, [])

    run(go())


@pytest.mark.parametrize(
    "url", ["https://10.0.0.1/", "https://[::ffff:7f00:1]/", "https://localhost/", "https://shop.example:25/"]
)
def test_what_urls_themselves_say_is_judged_before_the_proxy_is_asked(url: str) -> None:
    async def go() -> None:
        async with forward_proxy() as proxy, through(proxy.url) as used:
            assert isinstance(outcome := await send(url, transport=used), Retry)
            assert (outcome.code, proxy.heads) == ("unsafe_address", [])

    run(go())


def test_http_to_loopback_does_not_take_the_proxy() -> None:
    async def go() -> None:
        policy = AddressPolicy(allow_loopback_http=True)
        async with endpoint(status(200)) as there, forward_proxy() as proxy, through(proxy.url, policy=policy) as used:
            assert isinstance(await send(there.url, transport=used), Delivered)
            assert proxy.heads == []

    run(go())


@pytest.mark.parametrize("address", ["169.254.169.254", "[fe80::1]", "168.63.129.16"])
def test_a_metadata_service_is_no_proxy(address: str) -> None:
    async def go() -> None:
        async with through(f"http://{address}:3128") as used:
            assert isinstance(outcome := await send("https://shop.example/", transport=used), Retry)
            assert outcome.code == "unsafe_address"

    run(go())


@pytest.mark.parametrize(
    "url",
    [
        "", "proxy:3128", "http://proxy", "https://proxy:3128", "socks5://proxy:1080", "http://proxy:99999",
        "http://:3128", "http://user:hush@proxy:3128/path", "http://user:hush@proxy:3128?q", "http://[::1:3128",
    ],
)  # fmt: skip
def test_a_malformed_proxy_is_refused_unshown(url: str) -> None:
    with pytest.raises(InvalidDeployment) as caught:
        HttpxTransport(proxy=url)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy"])
@pytest.mark.parametrize("transport", [HttpxTransport, FastTransport])
def test_the_proxies_of_the_environment_are_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, transport: type[HttpxTransport | FastTransport], name: str
) -> None:
    async def go() -> None:
        tls, trust = certificate(tmp_path, "localhost")
        policy = AddressPolicy(allow_loopback_http=True)
        async with endpoint(status(200), tls=tls) as there, endpoint(status(200)) as plain, forward_proxy() as proxy:
            monkeypatch.setenv(name, proxy.url)
            used = transport(policy, ssl_context=trust)
            for url in (there.url, plain.url):
                assert isinstance(await send(url, transport=used), Delivered)
            await used.aclose()
            assert proxy.heads == []

    run(go())
