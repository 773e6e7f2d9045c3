"""Hostile endpoints, each a case: what it does with one request, and what every transport has to make of that.

A case's endpoint runs in threads, so that the loop under test holds nothing but the transport. Each case posts once,
then once more to see over which connection that goes, and ends with nothing left: no task, descriptor or loop error.
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import pytest
import uvloop

from hookline_sender.egress import FastTransport, HttpxTransport, TransportFailed
from hookline_sender.egress.addresses import AddressPolicy
from hookline_sender.egress.idle import MAX_IDLE
from tests.support import HANG, in_time

if TYPE_CHECKING:
    from types import EllipsisType

    from hookline_sender.egress import Transport

LOOPS: Final[dict[str, Callable[[], asyncio.AbstractEventLoop]]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
TRANSPORTS: Final[dict[str, Callable[..., Transport]]] = {"fast": FastTransport, "httpx": HttpxTransport}
ROUNDS: Final = int(os.environ.get("ROUNDS", "1"))

PATIENCE: Final = 50.0
"""Seconds that a request has which is to get its answer."""
SHORT: Final = 0.3
"""Seconds of a deadline that is to pass."""
FLOOD_BYTES: Final = 64_000_000
"""Whoever was sent that much has no cap: sockets hold less than a tenth of it."""

POLITE: Final = b"HTTP/1.1 204 X\r\n\r\n"
_LENGTH: Final = re.compile(rb"\r\ncontent-length: ([0-9]+)\r\n", re.IGNORECASE)


Test = TypeVar("Test", bound=Callable[..., None])


@dataclass(frozen=True)
class Expect:
    """An answer's status or a failure's kind; `status` is a failure's own, ... for any."""

    result: int | str
    status: int | EllipsisType | None = None
    kept: bool = False
    sent_times: int = 1


def ok(status: int = 200, *, kept: bool = False, sent_times: int = 1) -> Expect:
    """An answer counts; its connection is dropped unless `kept`."""
    return Expect(status, kept=kept, sent_times=sent_times)


def fails(kind: str, status: int | EllipsisType | None = None, *, sent_times: int = 1) -> Expect:
    """No answer, and the connection is dropped."""
    return Expect(kind, status, sent_times=sent_times)


@dataclass(frozen=True)
class Gap:
    """What one transport does instead, and why that is known and left."""

    transport: str
    expect: Expect
    why: str


@dataclass(frozen=True)
class Case:
    """`act` is sent, or done, by the first connection when the request under test has come; then it goes on politely.

    warm: a polite exchange before, so that the request goes over a connection that was used. early: `act` begins with
    the connection, nothing read. again: what a second connection does with its first request. unread: the next
    request leaves before the loop could read what `act` did after the first one. https: `act` does the handshake.
    goes_on: whether another connection is answered.
    """

    name: str
    act: bytes | Behaviour
    expect: Expect
    gap: Gap | None = None
    warm: bool = False
    early: bool = False
    again: bytes | Behaviour = POLITE
    unread: bool = False
    https: bool = False
    goes_on: bool = True
    body: bytes = b"{}"
    deadline: float = PATIENCE
    tls: Callable[[], ssl.SSLContext] | None = None
    trust: Callable[[], ssl.SSLContext] | None = None
    host: str = "127.0.0.1"

    def expected_of(self, transport: str) -> Expect:
        """What holds for that transport."""
        return self.gap.expect if self.gap is not None and self.gap.transport == transport else self.expect


class Peer:
    """The endpoint's side of one connection."""

    def __init__(self, sock: socket.socket, zoo: Zoo, number: int) -> None:
        self.sock, self.zoo, self.number = sock, zoo, number
        self.received = bytearray()

    def send(self, *pieces: bytes) -> None:
        """Send each piece by itself."""
        for piece in pieces:
            self.sock.sendall(piece)

    def flood(self, start: bytes, piece: bytes) -> None:
        """Send `piece` after `start` again and again, until the other side leaves."""
        self.sock.sendall(start)
        block = piece * (65_536 // len(piece))
        for _ in range(FLOOD_BYTES // len(block)):
            self.sock.sendall(block)
        self.zoo.troubles.append("the flood was read to its end")

    def drip(self, start: bytes, piece: bytes) -> None:
        """Send `piece` every 20 ms after `start`, until the other side leaves."""
        self.sock.sendall(start)
        while not self.zoo.over.wait(0.02):
            self.sock.sendall(piece)

    def read(self) -> bool:
        """Take in what comes; False at the end."""
        piece = self.sock.recv(65_536)
        self.received += piece
        return bool(piece)

    def read_request(self) -> bool:
        """Take in one whole request and note it; False at the end."""
        while (whole := self._whole()) is None:
            if not self.read():
                return False
        self.zoo.requests.append((self.number, bytes(self.received[:whole])))
        del self.received[:whole]
        return True

    def _whole(self) -> int | None:
        head = self.received.find(b"\r\n\r\n") + 4
        if head < len(b"\r\n\r\n"):
            return None
        length = _LENGTH.search(self.received, 0, head)
        size = head + (int(length[1]) if length else 0)
        return size if len(self.received) >= size else None

    def fin(self) -> None:
        """End this direction in an orderly way, under TLS without its farewell; the other one stays open."""
        with self.below() as plain:
            plain.shutdown(socket.SHUT_WR)

    def below(self) -> socket.socket:
        """The connection without its TLS, to be closed by whoever asked."""
        return socket.socket(fileno=os.dup(self.sock.fileno()))

    def rst(self) -> None:
        """Reset the connection."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # A duplicate of the descriptor would keep the connection: close it under a TLS socket as well.
        socket.socket(fileno=self.sock.detach()).close()

    def until_taken(self) -> None:
        """Return when the other side's loop has read what was sent: it looks at its sockets in each of its turns."""
        for _ in range(3):
            turned = threading.Event()
            self.zoo.loop.call_soon_threadsafe(turned.set)
            turned.wait(HANG)

    def until_left(self) -> None:
        """Return when the other side has left; nothing is answered."""
        while self.read():
            pass


Behaviour = Callable[[Peer], None]


@dataclass
class Zoo:
    """A case's endpoint. requests: the number of the connection, from 1, and the bytes of each whole request.

    left: set when the first connection has ended. posted: when the request under test has.
    acted: when the case has done what it does.
    loop: the one under test.
    """

    case: Case
    requests: list[tuple[int, bytes]] = field(default_factory=list)
    connections: int = 0
    troubles: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    left: threading.Event = field(default_factory=threading.Event)
    posted: threading.Event = field(default_factory=threading.Event)
    acted: threading.Event = field(default_factory=threading.Event)
    loop: asyncio.AbstractEventLoop = field(init=False)

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)  # what is not read does not leave
        self._threads = [threading.Thread(target=self._accept, name="zoo", daemon=True)]
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        with self._listener, socket.create_connection(self._listener.getsockname()):  # which wakes whoever accepts
            self._threads[0].join(PATIENCE)
        for thread in self._threads:
            thread.join(HANG)
            assert not thread.is_alive(), "a connection was never closed"

    @property
    def url(self) -> str:
        """Where to post to."""
        scheme = "http" if self.case.tls is None and not self.case.https else "https"
        return f"{scheme}://{self.case.host}:{self._listener.getsockname()[1]}/hook"

    def _accept(self) -> None:
        while not self.over.is_set():
            sock, _ = self._listener.accept()
            if self.over.is_set():
                sock.close()
                return
            self.connections += 1
            self._threads.append(threading.Thread(target=self._serve, args=(sock, self.connections), daemon=True))
            self._threads[-1].start()

    def _serve(self, sock: socket.socket, number: int) -> None:
        sock.settimeout(PATIENCE)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self.case.tls is not None:
                sock = secured = self.case.tls().wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
                _shake_hands(secured)
            self._behave(Peer(sock, self, number))
        except TimeoutError:
            self.troubles.append(f"connection {number} waited for {PATIENCE:g} s")
        except OSError:
            pass  # the other side has left
        finally:
            sock.close()
            if number == 1:
                self.left.set()

    def _behave(self, peer: Peer) -> None:
        case = self.case
        script = {1: case.act, 2: case.again}.get(peer.number, POLITE)
        if peer.number == 1 and case.warm:
            peer.read_request()
            peer.send(POLITE)
        if (case.early and peer.number == 1) or peer.read_request():
            script(peer) if callable(script) else peer.send(script)
            self.acted.set()
        while peer.sock.fileno() >= 0 and peer.read_request():
            peer.send(POLITE)


def _shake_hands(secured: ssl.SSLSocket) -> None:
    """Do the server's side, so that a refusal arrives: closing with something unread would reset the connection."""
    try:
        secured.do_handshake()
    except ssl.SSLError:
        with socket.socket(fileno=os.dup(secured.fileno())) as plain:
            plain.settimeout(PATIENCE)
            while plain.recv(65_536):
                pass
        raise


def each_way(test: Test) -> Test:
    """Run a test over each transport, on each loop."""
    marked: Test = pytest.mark.parametrize("loop", LOOPS)(pytest.mark.parametrize("transport", TRANSPORTS)(test))
    return marked


def every_way(cases: list[Case]) -> Callable[[Test], Test]:
    """Run a test with each case, over each transport, on each loop."""

    def mark(test: Test) -> Test:
        assert len({case.name for case in cases}) == len(cases)
        each: Test = pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in cases])(test)
        return each_way(each)

    return mark


def on_loop(name: str, main: Callable[[], Any]) -> Any:
    """What `main` returns on a loop of that kind, which nothing may be left on and no error be reported to."""
    troubles: list[Mapping[str, object]] = []

    async def go() -> Any:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context))
        async with asyncio.timeout(HANG):
            result = await main()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    with asyncio.Runner(loop_factory=LOOPS[name]) as runner:
        result = runner.run(go())
    gc.collect(0)  # an exception that nobody retrieved is reported when its task goes
    assert troubles == []
    return result


@contextmanager
def no_descriptor_left() -> Generator[None]:
    """Assert that as many descriptors are open after the block as before."""
    _open_for_good()
    before = os.listdir("/dev/fd")  # noqa: PTH208 - names, not paths
    yield
    assert len(os.listdir("/dev/fd")) == len(before)  # noqa: PTH208


@cache
def _open_for_good() -> None:
    for new_loop in LOOPS.values():
        new_loop().close()  # libuv's first loop opens a pipe for all of them


def check(case: Case, transport: str, loop: str) -> None:
    """Assert that a case ends as it has to."""

    def within(seconds: float) -> Expect:
        return observe(replace(case, deadline=seconds), transport, loop)

    expected = case.expected_of(transport)
    known = in_time(within, lambda found: found == expected, SHORT) if case.deadline == SHORT else within(case.deadline)
    assert known == expected


def observe(case: Case, transport: str, loop: str) -> Expect:
    """How a case ends; asserts that nothing is left of it."""
    expected = case.expected_of(transport)
    for make in (case.tls, case.trust):
        if make is not None:
            make()  # once, before anything counts or has to answer in time
    with no_descriptor_left(), Zoo(case) as zoo:
        observed: Expect = on_loop(loop, lambda: _observe(zoo, transport, expected))
    assert zoo.troubles == []
    return observed


async def _observe(zoo: Zoo, transport: str, expected: Expect) -> Expect:
    case, trust = zoo.case, None if zoo.case.trust is None else zoo.case.trust()
    zoo.loop, policy = asyncio.get_running_loop(), AddressPolicy(allow_loopback_http=True)
    used = TRANSPORTS[transport](policy, ssl_context=trust)
    try:
        if case.warm:
            await _post(used, zoo.url, b"warm", PATIENCE)
        result, status = await _post(used, zoo.url, case.body, case.deadline)
        zoo.posted.set()
        times = zoo.connections
        assert len({request for _, request in zoo.requests if not request.endswith(b"warm")}) <= 1, "a repeat differs"
        if case.unread:
            zoo.acted.wait(HANG)  # the loop stands still meanwhile
        elif not expected.kept:
            async with asyncio.timeout(0.8 * MAX_IDLE):  # then an idle timer would close what was kept
                while not zoo.left.is_set():  # noqa: ASYNC110 - it is set in a thread
                    await asyncio.sleep(0.001)
        kept = case.goes_on and result not in ("connect", "tls") and await _goes_on(used, zoo)
    finally:
        await used.aclose()
    if status != expected.status and expected.status is ...:
        status = ...  # type: ignore[assignment]
    return Expect(result, status, kept=kept, sent_times=times)


async def _goes_on(used: Transport, zoo: Zoo) -> bool:
    """Whether the next request goes over the connection that the last one went over; it has to be answered."""
    last = zoo.connections
    result, _ = await _post(used, zoo.url, b"next", PATIENCE)
    assert result == 204
    assert zoo.requests[-1][1].endswith(b"next")
    return zoo.requests[-1][0] == last


async def _post(used: Transport, url: str, body: bytes, seconds: float) -> tuple[int | str, int | None]:
    said: list[bool] = []
    started = time.monotonic()
    deadline = asyncio.get_running_loop().time() + seconds
    try:
        answer = await used.post(url, [], body, deadline=deadline, destination="d", on_sent=lambda: said.append(True))
        result: tuple[int | str, int | None] = answer.status, None
        sent = True
    except TransportFailed as failure:
        result, sent = (failure.kind, failure.status), failure.sent
    assert time.monotonic() - started < seconds + 20
    assert said == [True] * sent
    return result
