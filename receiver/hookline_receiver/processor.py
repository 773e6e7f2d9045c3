"""Processor: handles what a receiver in accept mode has stored, with retries and dead letters of its own.

take ──▶ an attempt each, at most `concurrency` ──▶ settle
  ▲ every `poll` seconds, and whenever a slot becomes free
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import Counter
from dataclasses import replace
from random import random
from typing import TYPE_CHECKING, Final

from hookline_receiver.answers import Answer
from hookline_receiver.attempting import Retries, ending
from hookline_receiver.errors import InvalidReceiver, LedgerUnavailable
from hookline_receiver.flows import handling_of
from hookline_receiver.handling import Terms
from hookline_receiver.ledger.protocol import Entry
from hookline_receiver.limits import check_seconds, check_whole
from hookline_receiver.queues.protocol import Again, Dead, Queue
from hookline_receiver.receiver import Receiver

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from hookline_receiver.handlers import Start
    from hookline_receiver.outcome import Settled
    from hookline_receiver.queues.protocol import Depth, Ending, Record, Taken

log = logging.getLogger("hookline.receiver")

PAUSE: Final = 1.0  # seconds until a store that could not be asked is asked again


class Processor:
    """Runs the handlers of a receiver in accept mode for what that has stored. Any number of them may run side by side.

    `concurrency`: handlers at once. `attempts` at one delivery, with `backoff` seconds after the first, doubled each
    time up to `max_backoff`; then, or when the handler raises Reject, it is a dead letter, **of which its sender learns
    nothing**. Seconds: `handler_deadline` stops a handler, a crashed processor's deliveries are taken over after
    `lease`, the store is asked every `poll`, and at the end handlers get `grace` to finish. `rand` gives floats in
    [0, 1) for the jitter of retries.

    Nothing is done before `run`. Raises InvalidReceiver.
    """

    def __init__(
        self,
        receiver: Receiver,
        *,
        concurrency: int = 10,
        attempts: int = 20,
        backoff: float = 2.0,
        max_backoff: float = 3600.0,
        handler_deadline: float = 60.0,
        lease: float = 30.0,
        poll: float = 0.5,
        grace: float = 10.0,
        rand: Callable[[], float] = random,
    ) -> None:
        given: object = receiver  # callers without a type checker
        if not isinstance(given, Receiver):
            message = f'a Processor takes a Receiver(…, mode="accept"), not {type(given).__name__}'
            raise InvalidReceiver(message)
        check_whole("concurrency", concurrency)
        check_whole("attempts", attempts)
        check_seconds(backoff=backoff, max_backoff=max_backoff, handler_deadline=handler_deadline)
        check_seconds(lease=lease, poll=poll, grace=grace)
        self._receiver, self._concurrency, self._poll, self._grace = receiver, concurrency, poll, grace
        self._retries, self._rand = Retries(attempts, backoff, max_backoff), rand
        self._terms = Terms(lease, handler_deadline)
        self._counters: Counter[str] = Counter()
        _ = self._queue

    def __repr__(self) -> str:
        return f"Processor({self._receiver!r})"

    @property
    def counters(self) -> Mapping[str, int]:
        """How often each occurred: handled, retried, dead, fence_lost, effect_unrecorded; 0 if never."""
        return self._counters

    async def run(self) -> None:
        """Work until cancelled; that is the way to stop it.

        Stopping is graceful: nothing more is taken, running handlers get `grace` to finish, what does not is cancelled
        and queued again. A handler in a thread cannot be stopped: its delivery comes back when the lease lapses. While
        the store is away the processor waits for it, but not at the start.
        Raises LedgerUnavailable, WeakDurability: at the start.
        """
        async with self._queue.opened():
            await self._serve()

    @contextlib.asynccontextmanager
    async def background(self) -> AsyncGenerator[None]:
        """Work while the block runs, then stop gracefully. Raises like `run`, before the block begins."""
        async with self._queue.opened():
            running = asyncio.create_task(self._serve(), name="hookline-processor")
            try:
                yield
            finally:
                running.cancel()
                await asyncio.wait({running})
                if not running.cancelled():
                    running.result()

    async def run_once(self) -> int:
        """Attempt what is due now, at most `concurrency`; how many attempts were made. For tests and for cron.

        Raises LedgerUnavailable, WeakDurability.
        """
        async with self._queue.opened():
            taken = await self._take(self._slots)
            await self._ended({asyncio.create_task(self._attempt(one)) for one in taken})
            return len(taken)

    async def inspect(self, delivery_id: str) -> Record | None:
        """An accepted delivery as it stands, by its id, or by its event's where the receiver dedupes by that."""
        async with self._queue.opened():
            for key in self._receiver.reading.keys_of(delivery_id):
                if (record := await self._queue.look(self._receiver.name, key)) is not None:
                    return record
            return None

    async def dead_letters(self, after: Record | None = None, limit: int = 100) -> Sequence[Record]:
        """Dead letters in the order of their deaths; the next page begins `after` the last of this one."""
        place = (0, b"") if after is None else (after.changed_ms, after.key)
        async with self._queue.opened():
            return await self._queue.dead_letters(self._receiver.name, place, limit)

    async def redrive(self, letter: str | Record) -> bool:
        """Queue a dead letter again, with all its attempts; by its delivery's id, or as it was listed.

        False when it is none (any more). Safe to call twice.
        """
        keys = self._receiver.reading.keys_of(letter) if isinstance(letter, str) else (letter.key,)
        async with self._queue.opened():
            return any([await self._queue.redrive(self._receiver.name, key) for key in keys])

    async def depth(self) -> Depth:
        """How much there is to do."""
        async with self._queue.opened():
            return await self._queue.depth(self._receiver.name)

    @property
    def _queue(self) -> Queue:
        ledger = self._receiver.ledger
        if not isinstance(ledger, Queue):
            message = f'{self._receiver!r} handles deliveries itself: a Processor is for a Receiver(…, mode="accept")'
            raise InvalidReceiver(message)
        return ledger

    @property
    def _slots(self) -> int:
        return min(self._concurrency, self._queue.connections or self._concurrency)

    async def _serve(self) -> None:
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                if free := self._slots - len(running):
                    taken = await self._taken_at_last(free)
                    running |= {asyncio.create_task(self._attempt(one)) for one in taken}
                    if len(taken) < free:
                        await asyncio.sleep(self._poll)
                else:
                    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                running = {task for task in running if not task.done()}
        finally:
            await self._ended(running, self._grace)

    async def _taken_at_last(self, most: int) -> Sequence[Taken]:
        while True:
            try:
                return await self._take(most)
            except LedgerUnavailable as error:
                log.warning("a processor waits for its store: %s", error)
                await asyncio.sleep(PAUSE)

    async def _take(self, most: int) -> Sequence[Taken]:
        return await self._queue.take(self._receiver.name, secrets.token_bytes(16), self._terms.lease, most)

    async def _ended(self, running: set[asyncio.Task[None]], patience: float | None = None) -> None:
        """Return when all have ended; those that do not in time, or when we are cancelled, are told to stop."""
        try:
            if running:
                await asyncio.wait(running, timeout=patience)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _attempt(self, taken: Taken) -> None:
        try:
            await self._attempted(taken)
        except LedgerUnavailable as error:
            log.warning("an attempt's end could not be recorded, the delivery comes back: %s", error)
        except Exception:
            log.exception("an attempt failed, the delivery comes back")

    async def _attempted(self, taken: Taken) -> None:
        if taken.attempts > self._retries.attempts:  # the last one was never settled
            await self._settle(taken, Dead("lost"))
            return
        start = self._receiver.reading.prepare(taken.delivery)
        if isinstance(start, Answer):  # another version of the service accepted it: one that knows it may come along
            await self._settle(taken, self._ending(start, taken))
            return
        await self._run(taken, start)

    async def _run(self, taken: Taken, start: Start) -> None:
        ledger = self._queue.attempt(self._receiver.name, taken)
        flow = handling_of(ledger, self._terms, self._counters)
        try:
            answer = await flow.answer(Entry(taken.key, b""), replace(taken.delivery, fence=taken.fence), start)
            await flow.tasks.ended()
        except asyncio.CancelledError:
            await flow.tasks.stop()
            if ledger.over and not ledger.finished:
                await self._settle(taken, Again(0, "stopped"))
            raise
        if ledger.finished:
            self._counters["handled"] += 1
        elif ledger.over:
            await self._settle(taken, self._ending(answer, taken))

    def _ending(self, answer: Settled, taken: Taken) -> Again | Dead:
        return ending(answer, taken.attempts, self._retries, self._rand())

    async def _settle(self, taken: Taken, how: Ending) -> None:
        if not await self._queue.settle(self._receiver.name, taken, how):
            return  # somebody else has it
        if isinstance(how, Dead):
            self._counters["dead"] += 1
            log.error("delivery %s was given up after %d attempts: %s", taken.delivery.id, taken.attempts, how.reason)
        else:
            self._counters["retried"] += 1
