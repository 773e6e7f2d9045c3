"""Concurrent calls become one pipeline: group commit for publishers.

    call ─┐                    ┌─ at most 64 calls or 1 MiB ─▶ one round trip, one fsync
    call ─┼─▶ waiting queue ───┤
    call ─┘                    └─ the next batch gathers while this one is in flight

A task of the coalescer's own does the sending. A caller that is cancelled loses only its answer: the round trip it
shares goes on, and a call that is still waiting is dropped before it is sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from hookline_sender.errors import RedisUnavailable
from hookline_shared.errors import HooklineError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

MAX_CALLS = 64
FEW_CALLS = 16
MAX_BYTES = 1 << 20

C = TypeVar("C")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Call(Generic[C, R]):
    """A command that waits for its batch."""

    command: C
    size_bytes: int
    answer: asyncio.Future[R]


class Coalescer(Generic[C, R]):
    """Gathers the calls of many tasks of one event loop into batches.

    `send` performs a batch and gives one answer per command, in order: a result, or the error its caller gets. An
    error that `send` raises reaches every caller of the batch.
    """

    def __init__(self, send: Callable[[Sequence[C]], Awaitable[Sequence[R | HooklineError]]]) -> None:
        self._send = send
        self._waiting: deque[Call[C, R]] = deque()
        self._loop = asyncio.get_running_loop()
        self._pump: asyncio.Task[None] | None = None
        self._closed = False

    async def submit(self, command: C, size_bytes: int) -> R:
        """The command's own answer. Cancelling this call never disturbs the others.

        Raises:
            HooklineError: the command's error, or: closed, or called from another event loop than the one it serves.
        """
        if self._closed:
            raise HooklineError("the publisher is closed")
        if asyncio.get_running_loop() is not self._loop:
            raise HooklineError("the publisher was opened in another event loop: open one per loop")
        call: Call[C, R] = Call(command, size_bytes, self._loop.create_future())
        self._waiting.append(call)
        if self._pump is None:
            self._pump = self._loop.create_task(self._drain(), name="hookline-publish")
        return await call.answer

    async def aclose(self) -> None:
        """Take no more calls and return when those already taken have their answer. Safe to call twice.

        Cancelling this ends the round trip in flight; whoever waits gets RedisUnavailable.
        """
        self._closed = True
        if self._pump is not None:
            await self._pump

    async def _drain(self) -> None:
        unanswered: list[Call[C, R]] = []
        try:
            while True:
                if len(self._waiting) < FEW_CALLS:
                    await asyncio.sleep(0)  # whoever is ready in this turn of the event loop joins the batch
                unanswered = take(self._waiting, share(len(self._waiting)))
                if not unanswered:
                    return
                await self._exchange(unanswered)
        finally:
            self._pump = None
            _abandon([*unanswered, *self._waiting])

    async def _exchange(self, batch: Sequence[Call[C, R]]) -> None:
        answers: Sequence[R | Exception]
        try:
            answers = await self._send([call.command for call in batch])
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to the callers, not to the pump
            answers = [error] * len(batch)
        for call, answer in zip(batch, answers, strict=True):
            if call.answer.done():
                continue
            if isinstance(answer, Exception):
                call.answer.set_exception(answer)
            else:
                call.answer.set_result(answer)


def share(waiting: int) -> int:
    """Most calls of the next batch: half of what would fit, so that the callers of one half work while Redis does.

    In one batch they would all wait for Redis, and then Redis for all of them: 10,600 publications a second instead of
    16,800. A few calls, and more than one batch holds, go as they are.
    """
    return (waiting + 1) // 2 if 2 * FEW_CALLS < waiting <= MAX_CALLS else MAX_CALLS


def take(waiting: deque[Call[C, R]], most: int = MAX_CALLS) -> list[Call[C, R]]:
    """Remove the next batch from the front; calls whose caller has gone are dropped. A big call goes alone."""
    batch: list[Call[C, R]] = []
    room = MAX_BYTES
    while waiting and len(batch) < most:
        if waiting[0].answer.done():
            waiting.popleft()
            continue
        if batch and waiting[0].size_bytes > room:
            break
        batch.append(waiting.popleft())
        room -= batch[-1].size_bytes
    return batch


def _abandon(calls: Sequence[Call[C, R]]) -> None:
    """Tell callers that nobody will answer. Not by a cancellation: a task group takes that for a quiet end."""
    for call in calls:
        if not call.answer.done():
            call.answer.set_exception(
                RedisUnavailable(
                    "the publisher was stopped before Redis answered, so it is open whether this was published: "
                    "publish it again with the same id, which is always safe"
                )
            )
