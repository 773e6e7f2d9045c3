"""From a host name to a connected socket, with answers of a resolver that a test makes up."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import pytest

from hookline_sender.egress import AddressPolicy, TransportFailed
from hookline_sender.egress.guard import Guard
from hookline_sender.egress.names import CACHED, Names
from tests.support import HANG, closed_port, run
from tests.support_receiver import asking, until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LOOPBACK = AddressPolicy(("127.0.0.0/8", "::1"))
"""Stands for the public internet: loopback is all a test may connect to."""


@dataclass
class Answers:
    """A resolver with one answer after the other, the last one for ever; `clock` is what the guard goes by."""

    answers: list[Sequence[str] | Exception]
    asked: list[str] = field(default_factory=list)
    now: float = 1000.0

    def __call__(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def guard(self, policy: AddressPolicy = LOOPBACK) -> Guard:
        return Guard(policy, Names(policy.allows, self, lambda: self.now))


class Listener:
    """A port of loopback; the system accepts for it."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=200)
        self._socket.setblocking(False)  # noqa: FBT003 - socket's own
        self.port: int = self._socket.getsockname()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def received(self) -> list[bytes]:
        """What came over each connection since the last call; they are closed by then."""
        found: list[bytes] = []
        with suppress(BlockingIOError):
            while True:
                made, _ = self._socket.accept()
                with made:
                    found.append(made.recv(1024))
        return found


async def kind_of(guard: Guard, host: str = "shop.example", port: int = 443) -> str:
    """How a connect fails; "" when it does not."""
    try:
        (await guard.connect(host, port)).close()
    except TransportFailed as failure:
        return failure.kind
    return ""


# What is connected to


def test_a_name_becomes_a_connected_socket_that_waits_for_nothing() -> None:
    async def go() -> None:
        with (
            Listener() as there,
            closing(await Answers([["127.0.0.1"]]).guard().connect("shop.example", there.port)) as made,
        ):
            assert made.getpeername() == ("127.0.0.1", there.port)
            assert (made.gettimeout(), made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0) == (0.0, True)

    run(go())


@pytest.mark.parametrize(
    "answers",
    [
        ["127.0.0.1", "10.0.0.1"], ["10.0.0.1", "127.0.0.1"], ["10.0.0.1"], ["169.254.169.254"], ["fe80::1%eth0"],
        ["127.0.0.1", "::ffff:10.0.0.1"], ["127.0.0.1", "64:ff9b::a9fe:a9fe"], ["127.0.0.1", "2002:a00:1::"],
        ["127.0.0.1", "::"], ["127.0.0.1", "0.0.0.0"], ["127.0.0.1", "fd00::1"], ["127.0.0.1", "shop.example"],  # noqa: S104
        [*(f"127.0.0.{number}" for number in range(1, 200)), "10.0.0.1"],
    ],
)  # fmt: skip
def test_one_answer_that_is_not_allowed_refuses_them_all_unshown(answers: list[str]) -> None:  # cases: A60
    async def go() -> None:
        with Listener() as there:
            with pytest.raises(TransportFailed) as caught:
                await Answers([answers]).guard().connect("shop.example", there.port)
            assert (caught.value.kind, caught.value.sent, there.received()) == ("unsafe", False, [])
            assert [each for each in (*answers, "shop") if each in str(caught.value)] == []

    run(go())


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "169.254.169.254", "10.0.0.1"])
def test_without_permission_the_house_itself_is_refused(host: str) -> None:  # cases: A63
    assert run(kind_of(Guard(AddressPolicy()), host)) == "unsafe"


def test_a_name_that_moves_into_the_house_is_refused_from_the_next_lookup_on() -> None:  # cases: A60
    async def go() -> None:
        names = Answers([["127.0.0.1"], ["10.0.0.1"], ["127.0.0.1"]])
        guard = names.guard()
        with Listener() as there:
            found = []
            for _ in range(3):
                found.append(await kind_of(guard, port=there.port))
                names.now += CACHED
            assert (found, len(names.asked)) == (["", "unsafe", ""], 3)

    run(go())


def test_one_connection_takes_one_lookup_so_that_a_second_answer_counts_for_nothing() -> None:  # cases: A60
    async def go() -> None:
        names = Answers([["127.0.0.1"], ["10.0.0.1"]])
        with Listener() as there:
            assert await kind_of(names.guard(), port=there.port) == ""
            assert names.asked == ["shop.example"]

    run(go())


def test_the_socket_is_asked_where_it_went_before_anybody_gets_it() -> None:
    class Changing(AddressPolicy):
        verdicts = iter([True, False])

        def allows(self, address: str) -> bool:
            assert address == "127.0.0.1"
            return next(self.verdicts)

    async def go() -> None:
        with Listener() as there:
            assert await kind_of(Answers([["127.0.0.1"]]).guard(Changing()), port=there.port) == "unsafe"
            assert there.received() == [b""]

    run(go())


def test_eight_addresses_are_tried_at_most() -> None:
    async def go() -> None:
        nobody = [f"127.0.0.{number}" for number in range(2, 10)]
        with Listener() as there:
            assert await kind_of(Answers([[*nobody, "127.0.0.1"]]).guard(), port=there.port) == "connect"
            assert await kind_of(Answers([[*nobody[1:], "127.0.0.1"]]).guard(), port=there.port) == ""

    run(go())


def test_a_port_of_another_protocol_is_refused_before_any_lookup() -> None:
    names = Answers([["127.0.0.1"]])
    assert run(kind_of(names.guard(), port=25)) == "unsafe"
    assert names.asked == []


def test_a_refused_connection_shows_no_address() -> None:
    with pytest.raises(TransportFailed) as caught:
        run(Answers([["127.0.0.1"]]).guard().connect("shop.example", closed_port()))
    assert (caught.value.kind, "127" in str(caught.value)) == ("connect", False)


# Lookups


def test_a_resolvers_own_words_are_not_shown() -> None:
    with pytest.raises(TransportFailed) as caught:
        run(Answers([OSError("10.0.0.53 says no")]).guard().connect("shop.example", 443))
    assert (caught.value.kind, "10.0.0.53" in str(caught.value)) == ("dns", False)


def test_a_lookup_that_hangs_does_not_keep_the_process() -> None:
    script = """
import asyncio, threading
from hookline_sender.egress.names import Names

async def main():
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    def hang(host):
        loop.call_soon_threadsafe(asked.set)
        threading.Event().wait()
    waiting = asyncio.create_task(Names(bool, hang).addresses("shop.example"))
    await asked.wait()

asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-W", "error", "-c", script], check=False, timeout=HANG)
    assert ended.returncode == 0


# Connections that do not come about


@contextmanager
def silent(address: str, port: int = 0) -> Iterator[int]:
    """A port on which nobody answers: its queue of connections is full."""
    with closing(socket.create_server((address, port), backlog=0)) as full:
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(2)]
        for each in waiting:
            each.setblocking(False)  # noqa: FBT003 - socket's own
            each.connect_ex((address, port))
        try:
            yield port
        finally:
            for each in waiting:
                each.close()


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="a full queue swallows connections on Linux")  # noqa: PTH110
def test_a_silent_address_gets_its_share_of_the_time_and_then_the_next_one() -> None:
    async def go() -> None:
        guard = Answers([["127.0.0.2", "127.0.0.1"]]).guard()
        with (
            Listener() as there,
            silent("127.0.0.2", there.port),
            closing(await guard.connect("shop.example", there.port)) as made,
        ):
            assert made.getpeername()[0] == "127.0.0.1"

    run(go())


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="descriptors are counted in /proc")  # noqa: PTH110
def test_a_hundred_cancelled_connects_leave_no_descriptor() -> None:
    async def go() -> None:
        guard = Answers([["127.0.0.1"]]).guard()
        with silent("127.0.0.1") as port:
            await asyncio.wait({asyncio.create_task(asyncio.wait_for(kind_of(guard, port=port), 0.01))})
            before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
            tasks = [asyncio.create_task(kind_of(guard, port=port)) for _ in range(100)]
            await until(asking(lambda: len(os.listdir("/proc/self/fd"))), lambda count: count > before)  # noqa: PTH208
            for each in tasks:
                each.cancel()
            await asyncio.wait(tasks)
            assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208

    run(go())
