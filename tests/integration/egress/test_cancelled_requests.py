"""Requests cancelled anywhere: nothing stays behind, and none of their answers goes to another request."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

import pytest

from hookline_sender.egress import AddressPolicy
from tests.support import HANG
from tests.support_tls import good, trusting
from tests.support_zoo import PATIENCE, ROUNDS, TRANSPORTS, each_way, no_descriptor_left, on_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from hookline_sender.egress import Transport

AT_ONCE = 100
REPEATS = 5 * ROUNDS
ECHO = b"HTTP/1.1 103 X\r\n\r\nHTTP/1.1 200 OK\r\necho: %b\r\ntransfer-encoding: chunked\r\n\r\n5\r\nwhole\r\n0\r\n\r\n"


class Echo(asyncio.Protocol):
    """Answers each request with its own body in a field, a few bytes at a time."""

    def __init__(self, opened: set[asyncio.Transport]) -> None:
        self.open = opened

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self.received = cast("asyncio.Transport", transport), b""  # uvloop's is no subclass
        self.open.add(self.transport)

    def data_received(self, data: bytes) -> None:
        self.received += data
        while (end := self.received.find(b"\r\n\r\n") + 4) > 4 and len(self.received) >= end + 8:
            answer = ECHO % self.received[end : end + 8]
            self.received = self.received[end + 8 :]
            self.answer(answer)

    def answer(self, rest: bytes) -> None:
        """Write some of it and go on in the loop's next turn."""
        self.transport.write(rest[:7])
        if rest[7:] and not self.transport.is_closing():
            asyncio.get_running_loop().call_soon(self.answer, rest[7:])

    def connection_lost(self, exc: Exception | None) -> None:
        self.open.discard(self.transport)


@asynccontextmanager
async def echoing(secure: bool) -> AsyncIterator[tuple[str, set[asyncio.Transport]]]:  # noqa: FBT001
    """An endpoint that echoes, and its open connections; returns when all of them have ended."""
    opened: set[asyncio.Transport] = set()
    server = await asyncio.get_running_loop().create_server(
        lambda: Echo(opened), "127.0.0.1", 0, ssl=good() if secure else None
    )
    scheme = "https" if secure else "http"
    try:
        yield f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}/", opened
        async with asyncio.timeout(HANG):
            while opened:  # noqa: ASYNC110 - a protocol tells nobody
                await asyncio.sleep(0.001)
    finally:
        server.close()
        for transport in list(opened):
            transport.abort()


async def post(used: Transport, url: str, body: bytes) -> bytes:
    deadline = asyncio.get_running_loop().time() + PATIENCE
    answer = await used.post(url, [], body, deadline=deadline, destination="d")
    return dict(answer.headers)[b"echo"]


async def cancelled(used: Transport, url: str, chance: random.Random) -> int:
    """Send a hundred, cancel each after so many turns of the loop; how many ended before that."""
    bodies = [b"%08d" % chance.randrange(10**8) for _ in range(AT_ONCE)]
    posts = [asyncio.ensure_future(post(used, url, body)) for body in bodies]
    turns = sorted((chance.randrange(60), index) for index in range(AT_ONCE))
    now = 0
    for turn, index in turns:
        while now < turn:
            await asyncio.sleep(0)
            now += 1
        posts[index].cancel()
    ended = await asyncio.gather(*posts, return_exceptions=True)
    whole = [
        (body, echo) for body, echo in zip(bodies, ended, strict=True) if not isinstance(echo, asyncio.CancelledError)
    ]
    assert all(body == echo for body, echo in whole)
    return len(whole)


@each_way
@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
def test_a_hundred_cancelled_requests_leave_nothing_and_mix_nothing_up(secure: bool, transport: str, loop: str) -> None:  # noqa: FBT001  # cases: A46
    chance = random.Random(f"{secure}{transport}{loop}")  # noqa: S311 - repeatable

    async def go() -> None:
        used = TRANSPORTS[transport](AddressPolicy(allow_loopback_http=True), ssl_context=trusting())
        async with echoing(secure) as (url, connections):
            whole = sum([await cancelled(used, url, chance) for _ in range(REPEATS)])
            assert 0 < whole < AT_ONCE * REPEATS  # some were cancelled, some not
            bodies = [b"%08d" % number for number in range(50)]
            assert await asyncio.gather(*(post(used, url, body) for body in bodies)) == bodies
            assert len(connections) <= AT_ONCE
            await used.aclose()

    good(), trusting()
    with no_descriptor_left():
        on_loop(loop, go)
