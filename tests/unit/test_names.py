"""What a name resolves to, with resolvers that a test makes up."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from hookline_sender.egress import TransportFailed
from hookline_sender.egress.names import CACHED, CACHED_FAILURE, SLOW, SLOW_THREADS, THREADS, Names
from tests.support import HANG, run

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE, DNS, UNSAFE = ["192.0.2.1"], ["dns"], ["unsafe"]


@dataclass
class Resolver:
    """Names of the domain slow.example are answered when `released` is set, all others at once.

    answers: one after the other, the last one for ever. now: the clock, which a slow answer costs `costs` seconds.
    """

    answers: list[Sequence[str] | Exception] = field(default_factory=lambda: [HERE])
    asked: list[str] = field(default_factory=list["str"])
    released: threading.Event = field(default_factory=threading.Event)
    now: float = 1000.0
    costs: float = 0.0
    judged: int = 0

    def __call__(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        if host.endswith(".slow.example"):
            self.now += self.costs
            self.released.wait(20)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def names(self) -> Names:
        return Names(self.allows, self, lambda: self.now)

    def allows(self, address: str) -> bool:
        self.judged += 1
        return address in HERE


async def ask(names: Names, host: str = "shop.example") -> list[str]:
    """The addresses, or the kind of failure."""
    try:
        return list(await names.addresses(host))
    except TransportFailed as failure:
        return [failure.kind]


async def ask_all(names: Names, count: int, domain: str) -> list[list[str]]:
    return await asyncio.gather(*(ask(names, f"{number}.{domain}") for number in range(count)))


@pytest.mark.parametrize("answer", [OSError("10.0.0.53 says no"), UnicodeError("label"), ValueError("?"), []])
def test_a_name_that_does_not_resolve_is_asked_again_after_a_while(answer: Sequence[str] | Exception) -> None:
    async def go() -> None:
        resolver = Resolver([answer, HERE])
        names = resolver.names()
        assert [await ask(names) for _ in range(3)] == [DNS] * 3
        assert len(resolver.asked) == 1
        resolver.now += CACHED_FAILURE
        assert await ask(names) == HERE

    run(go())


def test_an_answer_is_used_again_for_a_while() -> None:
    async def go() -> None:
        resolver = Resolver()
        names = resolver.names()
        for wait, lookups in ((0.0, 1), (CACHED - 0.1, 1), (0.1, 2)):
            resolver.now += wait
            assert (await ask(names), len(resolver.asked)) == (HERE, lookups)

    run(go())


def test_an_answer_is_judged_once_all_of_it_and_its_first_addresses_are_given() -> None:
    async def go() -> None:
        resolver = Resolver([[f"192.0.2.{number}" for number in range(100)], [*HERE * 100, "192.0.2.2"], HERE * 9])
        names = resolver.names()
        for wait, found, judged in ((0, UNSAFE, 1), (1, UNSAFE, 1), (CACHED, UNSAFE, 102), (CACHED, HERE, 111)):
            resolver.now += wait
            assert (await ask(names), resolver.judged) == (found, judged)

    run(go())


def test_a_slow_name_holds_up_neither_the_loop_nor_others_and_is_asked_once() -> None:  # cases: A66
    async def go() -> None:
        resolver = Resolver()
        names = resolver.names()
        waiting = [asyncio.create_task(ask(names, "a.slow.example")) for _ in range(20)]
        assert await ask_all(names, 20, "shop.example") == [HERE] * 20
        assert resolver.asked.count("a.slow.example") == 1
        with pytest.raises(TimeoutError):  # waiting counts towards an attempt's time
            async with asyncio.timeout(0.01):
                await ask(names, "a.slow.example")
        resolver.released.set()
        assert await asyncio.gather(*waiting) == [HERE] * 20

    run(go())


def test_many_names_that_were_slow_before_wait_for_each_other_only() -> None:  # cases: A66
    async def go() -> None:
        resolver = Resolver(costs=SLOW)
        names = resolver.names()
        resolver.released.set()
        await ask_all(names, 2 * THREADS, "slow.example")
        resolver.now += CACHED
        resolver.released.clear()
        resolver.asked.clear()
        waiting = asyncio.ensure_future(ask_all(names, 2 * THREADS, "slow.example"))
        assert await ask_all(names, 20, "shop.example") == [HERE] * 20
        assert len(resolver.asked) <= 20 + SLOW_THREADS
        resolver.released.set()
        assert await waiting == [HERE] * 2 * THREADS

    run(go())


def test_fifty_names_that_never_answer_leave_threads_to_the_others() -> None:  # cases: A66
    async def go() -> None:
        resolver = Resolver()
        names = resolver.names()
        waiting = asyncio.ensure_future(ask_all(names, 50, "slow.example"))
        assert await ask_all(names, 20, "shop.example") == [HERE] * 20
        resolver.released.set()
        await waiting

    run(go())


def test_a_cancelled_question_leaves_the_lookup_to_the_others() -> None:
    async def go() -> None:
        resolver = Resolver()
        names = resolver.names()
        busy = asyncio.ensure_future(ask_all(names, THREADS, "slow.example"))
        await asyncio.sleep(0)
        first, second = (asyncio.create_task(ask(names)) for _ in range(2))  # their lookup waits for a thread
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait({first})
        resolver.released.set()
        assert (first.cancelled(), await second, await busy) == (True, HERE, [HERE] * THREADS)
        assert resolver.asked.count("shop.example") == 1

    run(go())


def test_closed_names_are_not_looked_up_and_what_waits_ends() -> None:
    async def go() -> None:
        resolver = Resolver()
        names = resolver.names()
        waiting = asyncio.ensure_future(ask_all(names, THREADS + 20, "slow.example"))
        while len(resolver.asked) < THREADS:  # noqa: ASYNC110 - it is asked in threads
            await asyncio.sleep(0.001)
        names.close()
        names.close()
        resolver.released.set()
        assert sorted(await waiting) == [HERE] * THREADS + [DNS] * 20
        assert (await ask(names), len(resolver.asked)) == (DNS, THREADS)

    run(go())


def test_no_thread_waits_for_the_next_name() -> None:
    async def go() -> None:
        await ask_all(Resolver().names(), 20, "shop.example")

    run(go())
    for thread in threading.enumerate():
        if thread.name == "hookline-dns":
            thread.join(HANG)
            assert not thread.is_alive()
