"""Answers changed and cut at random: the cuts change nothing, and no transport takes for whole what h11 does not."""

from __future__ import annotations

import asyncio
import random
import re
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

import h11
import pytest

from hookline_sender.egress import AddressPolicy, TransportFailed
from tests.support_zoo import LOOPS, PATIENCE, ROUNDS, TRANSPORTS, on_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from hookline_sender.egress import Transport

ANSWERS: Final = 500
PARTS: Final = 5 * ROUNDS  # in all of CI about a minute
LINE: Final = b"HTTP/1.1 200 OK\r\n"
SEEDS: Final = (
    LINE + b"content-length: 5\r\n\r\nhello",
    LINE + b"Content-Type: text/plain\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n",
    LINE + b"connection: close\r\n\r\nuntil the end",
    LINE + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n",
    LINE + b'transfer-encoding: chunked\r\n\r\n5;a=b;c="d;e"\r\nhello\r\n0;f\r\ntrailer: x\r\nanother: y\r\n\r\n',
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 X\r\nlink: </a>\r\n\r\n" + LINE + b"content-length: 2\r\n\r\nok",
    b"HTTP/1.0 503 Slow Down\r\nretry-after: 10\r\ncontent-length: 4\r\n\r\nbusy",
    b"HTTP/1.1 204 No Content\r\nx: y\r\n\r\n",
    b"HTTP/1.1 304\r\ncontent-length: 5\r\n\r\n",
    b"HTTP/1.1 302 Found\r\nlocation: /elsewhere?a=b\r\ncontent-length: 0\r\n\r\n",
)
PIECES: Final = (
    *(b"\r\n", b"\n", b"\r", b" ", b"\t", b"\x00", b"\x0b", b"\xff", b":", b";", b",", b"=", b'"', b"0", b"1", b"f"),
    *(b"\r\n\r\n", b"content-length: 5\r\n", b"transfer-encoding: chunked\r\n", b"0\r\n\r\n", b"1\r\nx\r\n", LINE),
    *(b"HTTP/1.1 100 X\r\n\r\n", b"HTTP/1.1 101 X\r\n\r\n", b"connection: close\r\n", b" folded\r\n", b"99999999999"),
)

# What both transports refuse and h11 takes.
STRICTER: Final[dict[str, re.Pattern[bytes]]] = {
    "a line that ends in one character": re.compile(rb"(?<!\r)\n|\r(?!\n)"),
    "a folded line": re.compile(rb"\r\n[ \t]"),
    "a control character": re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"),
    "two framings": re.compile(rb"(?is)(content-length|transfer-encoding)\s*:.*(content-length|transfer-encoding)\s*:"),
    "a length as a list": re.compile(rb"(?i)content-length:[^\r]*,"),
    "another version": re.compile(rb"HTTP/(?!1\.[01])"),
    "a status below 100": re.compile(rb"HTTP/1\.. 0"),
    "a chunk's size or extension with more than RFC 9112 7.1 lets it have": re.compile(rb"\r\n0*[0-9a-fA-F]+[ \t;]"),
    "a size over 64 bits": re.compile(rb"[0-9a-fA-F]{17}"),
}  # fmt: skip
# What the fast transport takes and the other does not.
LOOSER: Final[dict[str, re.Pattern[bytes]]] = {
    "a control character in a reason": re.compile(rb"HTTP/1\.[01] [0-9]{3} [^\r\n]*[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"),
    "an empty line between answers, or half of one": re.compile(rb"\r\n\r?\n[\r\n]"),
    "an empty name or value of an extension, or a quote inside one": re.compile(rb";[;=]|=[;\r]|;[^\r]*[^=\r]\""),
    "many leading zeros of a size": re.compile(rb"0{12}"),
}
# What the fast transport refuses alone: an answer behind an interim one that says that no other follows.
LAST_INTERIM: Final = re.compile(rb"(?is)HTTP/1\.0 1[0-9]{2}|HTTP/1\.1 1[0-9]{2}.*connection:[ \t]*close")

Result = tuple[int | str, int | None]


class Cutting(asyncio.Protocol):
    """Answers with pieces, each in a turn of the loop by itself, and ends."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.left = list(reversed(pieces))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.step()

    def step(self) -> None:
        if self.transport.is_closing():
            return
        if self.left:
            self.transport.write(self.left.pop())  # type: ignore[attr-defined]
            asyncio.get_running_loop().call_soon(self.step)
        else:
            self.transport.close()


class Endpoint:
    """Where every connection is answered with `pieces`."""

    pieces: list[bytes]
    url: str

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Endpoint]:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Cutting(self.pieces), "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        try:
            yield self
        finally:
            server.close()
            await server.wait_closed()


def changed(chance: random.Random) -> bytes:
    answer = bytearray(chance.choice(SEEDS))
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3))):
        start = chance.randrange(len(answer) + 1)
        end = start + chance.choice((0, 0, 1, 1, 2, 8))
        answer[start:end] = chance.choice((b"", chance.choice(PIECES), bytes(answer[start:end]) * 2))
    return bytes(answer)


def cuts(chance: random.Random, answer: bytes) -> list[list[bytes]]:
    """The answer in one piece, in a few, and sometimes byte by byte."""
    ways = [[answer]]
    at = sorted(chance.randrange(len(answer) + 1) for _ in range(chance.randrange(1, 6)))
    ways.append([answer[start:end] for start, end in zip([0, *at], [*at, len(answer)], strict=True)])
    if chance.random() < 0.1:
        ways.append([answer[index : index + 1] for index in range(len(answer))])
    return [[piece for piece in way if piece] for way in ways]


def by_h11(answer: bytes) -> int | None:
    """The status of an answer that is whole and well-formed to h11 as it comes, else None."""
    reader = h11.Connection(h11.CLIENT)
    reader.send(h11.Request(method="POST", target="/", headers=[("host", "a"), ("content-length", "0")]))
    reader.send(h11.EndOfMessage())
    status = None
    try:
        reader.receive_data(answer)
        while not isinstance(event := reader.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                reader.receive_data(b"")
            elif isinstance(event, h11.Response):
                status = event.status_code
    except (h11.RemoteProtocolError, RuntimeError):
        return None
    return status


async def read(used: Transport, there: Endpoint, pieces: list[bytes]) -> Result:
    there.pieces = pieces
    deadline = asyncio.get_running_loop().time() + PATIENCE
    try:
        answer = await used.post(there.url, [], b"", deadline=deadline, destination="d")
    except TransportFailed as failure:
        return failure.kind, failure.status
    return answer.status, None


async def fuzz(chance: random.Random, judge: Callable[[bytes, dict[str, Result]], None]) -> int:
    """Judge ANSWERS answers; how many were whole over both transports."""
    whole = 0
    transports = {name: make(AddressPolicy(allow_loopback_http=True), max_idle=0) for name, make in TRANSPORTS.items()}
    async with AsyncExitStack() as stack:
        there = await stack.enter_async_context(Endpoint().serving())
        for used in transports.values():
            stack.push_async_callback(used.aclose)
        for _ in range(ANSWERS):
            answer, results = changed(chance), dict[str, Result]()
            for way in cuts(chance, answer):
                for name, used in transports.items():
                    result = await read(used, there, way)
                    assert results.setdefault(name, result) == result, (name, answer, way)
            judge(answer, results)
            whole += all(isinstance(result[0], int) for result in results.values())
    return whole


def judge(answer: bytes, results: dict[str, Result]) -> None:
    """Neither takes more than h11, each takes all that h11 takes and no rule refuses, and both say the same."""
    whole, httpx, fast = by_h11(answer), results["httpx"], results["fast"]
    refused = any(pattern.search(answer) for pattern in STRICTER.values())
    assert httpx[0] == whole or (isinstance(httpx[0], str) and (refused or whole is None)), (answer, whole, results)
    if not any(pattern.search(answer) for pattern in LOOSER.values()):
        # What is malformed and cut short is either, and one refuses a head at its line, the other at its end.
        failed = isinstance(httpx[0], str) and isinstance(fast[0], str)
        alike = httpx == fast or (failed and httpx[1] in (None, fast[1]))
        assert alike or (fast[0] == "protocol" and LAST_INTERIM.search(answer)), (answer, whole, results)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("part", range(PARTS))
def test_however_an_answer_is_cut_it_is_read_alike_and_never_more_than_h11_reads(part: int, loop: str) -> None:
    chance = random.Random(f"{loop} {part}")  # noqa: S311 - repeatable
    assert 0 < on_loop(loop, lambda: fuzz(chance, judge)) < ANSWERS
