"""A receiver that is stopped at any moment leaves no transaction open."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pytest

from hookline_receiver import Delivery
from hookline_receiver.handlers import Work
from hookline_receiver.handling import Terms
from hookline_receiver.ledger.driven import Driven, Share
from hookline_receiver.ledger.lanes import AT_ONCE, Lanes
from hookline_receiver.ledger.protocol import Entry
from hookline_receiver.transacting import Transacting
from tests.support import HANG, eventually, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor
    from contextlib import AbstractAsyncContextManager

R = TypeVar("R")
ENTRY = Entry(bytes(32), bytes(32))
DELIVERY = Delivery("dlv_1", "order.paid", 1, 1, None, "application/json", b"{}")
TURNS = range(30)  # of the event loop, until it is stopped; a delivery is over after fewer


@dataclass
class Connection:
    """A transaction's steps, and whether one has a connection."""

    session: object = None
    open: bool = False

    def connect(self) -> None:
        self.open = True

    def begin(self) -> None:
        assert self.open

    def commit(self, status: int) -> None:
        assert status
        self.open = False

    def rollback(self) -> None:
        self.open = False


class Loop:
    """Where steps run that take the loop a turn to begin and one to end."""

    threads: Executor | None = None

    async def run(self, step: Callable[[], R]) -> R:
        await asyncio.sleep(0)
        done = step()
        await asyncio.sleep(0)
        return done

    def leave(self) -> None: ...


class Connections:
    """A ledger of one connection."""

    def __init__(self, *, threaded: bool) -> None:
        self.threaded, self.share = threaded, Share(1)
        self.connection, self.lanes = Connection(), Lanes()

    def opened(self) -> AbstractAsyncContextManager[None]:
        return contextlib.nullcontext()

    async def find(self, entry: Entry) -> None: ...

    def transaction(self, entry: Entry, deadline: float) -> Driven:
        del entry, deadline
        return Driven(self.connection, self.lanes.take if self.threaded else Loop, self.share)

    def passes(self, error: BaseException) -> bool:
        return isinstance(error, OSError)


def starting(handler: Callable[[], object], delivery: Delivery, threads: Executor | None = None, /) -> Work:
    """Start it in the transaction's thread, or a coroutine that takes a turn."""
    del delivery
    if threads is None:
        turn = asyncio.ensure_future(asyncio.sleep(0))
        return Work(turn, turn.cancel)
    called = threads.submit(handler)
    return Work(asyncio.wrap_future(called), called.cancel)


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize("turns", TURNS)
def test_stopped_at_any_turn_of_the_loop_no_connection_is_kept(turns: int, *, threaded: bool) -> None:
    async def go() -> None:
        flow = Transacting(ledger, Terms())
        answer = asyncio.ensure_future(flow.answer(ENTRY, DELIVERY, partial(starting, lambda: None)))
        for _ in range(turns):
            await asyncio.sleep(0)
        await flow.tasks.stop()
        await asyncio.wait_for(flow.tasks.ended(), 10)
        assert not ledger.connection.open
        (await asyncio.wait_for(ledger.share.take(), 10))()
        await asyncio.wait({answer}, timeout=HANG)

    ledger = Connections(threaded=threaded)
    run(go())


def test_a_thread_that_outlives_its_receiver_rolls_back_when_its_handler_ends() -> None:
    async def go() -> None:
        flow = Transacting(ledger, Terms(handler_deadline=0.01))
        answer = asyncio.ensure_future(flow.answer(ENTRY, DELIVERY, partial(starting, held)))
        await asyncio.to_thread(there.wait, 10)
        await flow.tasks.stop()
        assert ledger.connection.open
        go_on.set()
        await asyncio.wait_for(flow.tasks.ended(), 10)
        await asyncio.wait({answer}, timeout=HANG)

    def held() -> None:
        there.set()
        go_on.wait(HANG)

    ledger, there, go_on = Connections(threaded=True), threading.Event(), threading.Event()
    run(go())
    assert not ledger.connection.open


def test_what_was_queued_in_a_thread_is_done_though_nobody_waits_any_more() -> None:
    async def go() -> None:
        lane = Lanes().take()
        first = asyncio.ensure_future(lane.run(lambda: go_on.wait(HANG)))
        second = asyncio.ensure_future(lane.run(done.set))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait({second}, timeout=HANG)
        go_on.set()
        await first
        await lane.run(lambda: None)

    go_on, done = threading.Event(), threading.Event()
    run(go())
    assert done.is_set()


def test_a_thread_whose_step_hangs_is_given_to_nobody_else() -> None:
    async def go() -> None:
        first = lanes.take()
        hanging = asyncio.ensure_future(first.run(lambda: go_on.wait(HANG)))
        await asyncio.sleep(0)
        first.leave()
        assert await lanes.take().run(go_on.is_set) is False
        go_on.set()
        await hanging
        await asyncio.to_thread(eventually, lambda: first.threads in lanes._idle)

    go_on, lanes = threading.Event(), Lanes()
    run(go())


def test_threads_are_let_go_of_with_the_last_receiver_and_not_before() -> None:
    async def go() -> None:
        lane = lanes.take()
        with lanes.opened():
            with lanes.opened():
                await lane.run(lambda: None)
                lane.leave()
            again = lanes.take()
            assert (again.threads, await again.run(lambda: 1)) == (lane.threads, 1)
            again.leave()
        with pytest.raises(RuntimeError):
            lane.threads.submit(lambda: None)

    lanes = Lanes()
    run(go())


def test_short_steps_have_a_bounded_number_of_threads() -> None:
    async def go() -> None:
        steps = [asyncio.ensure_future(lanes.run(lambda: go_on.wait(HANG))) for _ in range(AT_ONCE * 3)]
        await asyncio.sleep(0)
        go_on.set()
        assert await asyncio.gather(*steps) == [True] * len(steps)

    go_on, lanes = threading.Event(), Lanes()
    run(go())
    assert len(lanes._idle) == AT_ONCE
