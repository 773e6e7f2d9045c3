from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

import pytest

from hookline_sender.batching import MAX_BYTES, Call, Coalescer, share, take
from hookline_sender.errors import RedisUnavailable
from hookline_shared.errors import HooklineError
from tests.support import run

if TYPE_CHECKING:
    from collections.abc import Sequence


class Wire:
    """Answers each command with itself, in batches that can be held back."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.sending = asyncio.Event()

    async def send(self, batch: Sequence[int]) -> list[int | HooklineError]:
        self.batches.append(list(batch))
        self.sending.set()
        await self.gate.wait()
        return [HooklineError("refused") if command < 0 else command for command in batch]


def test_calls_of_one_moment_share_a_batch() -> None:
    async def go() -> None:
        wire = Wire()
        calls: Coalescer[int, int] = Coalescer(wire.send)
        assert await asyncio.gather(*(calls.submit(n, 1) for n in range(100))) == list(range(100))
        assert [len(batch) for batch in wire.batches] == [64, 18, 18]

    run(go())


@pytest.mark.parametrize(("waiting", "most"), [(1, 64), (32, 64), (50, 25), (63, 32), (100, 64)])
def test_callers_of_one_half_work_while_redis_does(waiting: int, most: int) -> None:
    assert share(waiting) == most


def test_the_next_batch_gathers_while_one_is_in_flight() -> None:
    async def go() -> None:
        wire = Wire()
        calls: Coalescer[int, int] = Coalescer(wire.send)
        wire.gate.clear()
        waiting = []
        for n in range(5):
            waiting.append(asyncio.create_task(calls.submit(n, 1)))
            for _ in range(5):
                await asyncio.sleep(0)
        wire.gate.set()
        assert await asyncio.gather(*waiting) == list(range(5))
        assert wire.batches == [[0], [1, 2, 3, 4]]

    run(go())


def test_callers_that_were_just_answered_join_those_who_waited() -> None:
    async def go() -> None:
        wire = Wire()
        calls: Coalescer[int, int] = Coalescer(wire.send)

        async def twice(n: int) -> None:
            await calls.submit(n, 1)
            await calls.submit(n + 10, 1)

        wire.gate.clear()
        first = [asyncio.create_task(twice(n)) for n in (0, 1)]
        await wire.sending.wait()
        late = asyncio.create_task(calls.submit(2, 1))
        await asyncio.sleep(0)
        wire.gate.set()
        await asyncio.gather(*first, late)
        assert wire.batches == [[0, 1], [2, 10, 11]]

    run(go())


def test_an_error_reaches_only_its_own_caller() -> None:
    async def go() -> None:
        calls: Coalescer[int, int] = Coalescer(Wire().send)
        answers = await asyncio.gather(*(calls.submit(n, 1) for n in (1, -1, 2)), return_exceptions=True)
        assert (answers[0], type(answers[1]), answers[2]) == (1, HooklineError, 2)

    run(go())


def test_a_failed_round_trip_reaches_every_caller_and_the_next_one_works() -> None:
    async def go() -> None:
        failures = deque([ConnectionError("gone")])

        async def send(batch: Sequence[int]) -> list[int | HooklineError]:
            if failures:
                raise failures.popleft()
            return list(batch)

        calls: Coalescer[int, int] = Coalescer(send)
        answers = await asyncio.gather(*(calls.submit(n, 1) for n in range(3)), return_exceptions=True)
        assert [type(answer) for answer in answers] == [ConnectionError] * 3
        assert await calls.submit(7, 1) == 7

    run(go())


def test_a_cancelled_call_leaves_the_others_their_answers() -> None:
    async def go() -> None:
        wire = Wire()
        calls: Coalescer[int, int] = Coalescer(wire.send)
        wire.gate.clear()
        sent = [asyncio.create_task(calls.submit(n, 1)) for n in range(4)]
        await wire.sending.wait()
        waiting = [asyncio.create_task(calls.submit(n, 1)) for n in range(4, 8)]
        await asyncio.sleep(0)
        sent[0].cancel()
        waiting[0].cancel()
        await asyncio.sleep(0)
        wire.gate.set()
        assert await asyncio.gather(*sent[1:], *waiting[1:]) == [1, 2, 3, 5, 6, 7]
        assert wire.batches == [[0, 1, 2, 3], [5, 6, 7]]  # what was not sent yet is not sent any more

    run(go())


def test_closing_answers_what_was_asked_and_takes_no_more() -> None:
    async def go() -> None:
        calls: Coalescer[int, int] = Coalescer(Wire().send)
        asked = asyncio.create_task(calls.submit(1, 1))
        await asyncio.sleep(0)
        await calls.aclose()
        await calls.aclose()
        assert await asked == 1
        with pytest.raises(HooklineError, match="closed"):
            await calls.submit(2, 1)

    run(go())


def test_callers_are_told_when_closing_is_cut_short_and_not_cancelled_with_it() -> None:
    async def go() -> None:
        wire = Wire()
        wire.gate.clear()
        calls: Coalescer[int, int] = Coalescer(wire.send)
        asked = [asyncio.create_task(calls.submit(n, 1)) for n in range(100)]
        await wire.sending.wait()
        closing = asyncio.create_task(calls.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(answer) for answer in answers} == {RedisUnavailable}
        assert closing.cancelled()

    run(go())


def test_another_event_loop_is_refused_instead_of_hanging() -> None:
    async def opened() -> Coalescer[int, int]:
        return Coalescer(Wire().send)

    calls = run(opened())
    with pytest.raises(HooklineError, match="another event loop"):
        run(calls.submit(1, 1))


@pytest.mark.parametrize(
    ("sizes", "batches"),
    [
        ([MAX_BYTES // 2] * 3, [2, 1]),
        ([MAX_BYTES * 2, 1], [1, 1]),
        ([1] * 65, [64, 1]),
    ],
)
def test_a_batch_is_bounded_in_calls_and_bytes(sizes: list[int], batches: list[int]) -> None:
    async def go() -> None:
        loop = asyncio.get_running_loop()
        waiting = deque(Call(n, size, loop.create_future()) for n, size in enumerate(sizes))
        taken = [len(take(waiting)) for _ in batches]
        assert taken == batches
        assert not waiting

    run(go())
