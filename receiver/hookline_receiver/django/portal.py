"""Receivers on an event loop of the process, for views that have none."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from hookline_receiver.receiver import Receiver

P = ParamSpec("P")
R = TypeVar("R")
CLOSING: Final = 10.0  # seconds that running handlers get when the process ends


class Opened:
    """A receiver that opens when it is first asked for, and closes when it is told or its event loop ends."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver, self._closing = receiver, asyncio.Event()
        self._opened: asyncio.Future[None]
        self._keeper: asyncio.Task[None] | None = None

    async def receiver(self) -> Receiver:
        """The receiver, open. Raises LedgerUnavailable as long as it cannot open."""
        if self._keeper is None or self._keeper.done():
            self._opened = asyncio.get_running_loop().create_future()
            self._keeper = asyncio.create_task(self._keep(self._opened))
        await asyncio.shield(self._opened)  # a caller that is cancelled leaves it to the others
        return self._receiver

    async def aclose(self) -> None:
        """Close it."""
        self._closing.set()
        if self._keeper is not None:
            await self._keeper

    async def _keep(self, opened: asyncio.Future[None]) -> None:
        # A task of its own, since an end of the loop cancels tasks one by one, and tears generators apart.
        try:
            async with self._receiver.lifespan():
                opened.set_result(None)
                await self._closing.wait()
        except Exception as error:  # noqa: BLE001 - whoever asked is told
            if not opened.done():
                opened.set_exception(error)


class Caller(Executor):
    """The thread that called, while it waits for its answer."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Have it call that; from any thread."""
        called: Future[R] = Future()

        def call() -> None:
            if called.set_running_or_notify_cancel():
                try:
                    called.set_result(fn(*args, **kwargs))
                except BaseException as error:  # noqa: BLE001 - whoever submitted it gets it
                    called.set_exception(error)

        self._calls.put(call)
        return called

    def wait(self, answer: Future[R]) -> R:
        """The answer; until there is one, call what is submitted."""
        answer.add_done_callback(lambda _: self._calls.put(None))
        while (call := self._calls.get()) is not None:
            call()
        return answer.result()


class Portal:
    """Calls coroutines of receivers from any thread, on an event loop in a thread of the process.

    One loop for all receivers, since they may share a ledger. A forked process has a loop of its own.
    """

    def __init__(self) -> None:
        self._lock, self._pid = threading.Lock(), 0
        self._loop: asyncio.AbstractEventLoop
        self._opened: dict[Receiver, Opened] = {}
        self._inherited: list[object] = []

    def call(self, receiver: Receiver, made: Callable[[Opened, Caller], Coroutine[object, object, R]]) -> R:
        """What the coroutine returns. It may have the caller do what blocks: nobody else waits for that."""
        caller = Caller()
        with self._lock:
            if self._pid != os.getpid():
                self._start()
            if receiver not in self._opened:
                self._opened[receiver] = Opened(receiver)
            work = made(self._opened[receiver], caller)
        return caller.wait(asyncio.run_coroutine_threadsafe(work, self._loop))

    def _start(self) -> None:
        if self._pid:  # forked: what runs belongs to the parent. Kept, since its end would be an end in this process
            self._inherited += [self._loop, self._opened]
            for receiver in self._opened:
                receiver.ledger = receiver.ledger  # nothing runs here yet, and nobody has a turn
        self._pid, self._loop, self._opened = os.getpid(), asyncio.new_event_loop(), {}
        threading.Thread(target=self._loop.run_forever, name="hookline-receiver", daemon=True).start()
        atexit.register(self._stop)

    def _stop(self) -> None:
        if self._pid == os.getpid():
            closing = asyncio.run_coroutine_threadsafe(self._close(), self._loop)
            with contextlib.suppress(TimeoutError):
                closing.result(CLOSING)

    async def _close(self) -> None:
        await asyncio.gather(*(opened.aclose() for opened in self._opened.values()))


PORTAL: Final = Portal()
