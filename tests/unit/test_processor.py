"""A processor: which attempts it makes at accepted deliveries, and how they end."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from starlette.responses import Response

from hookline_receiver import Delivery, InvalidReceiver, LedgerUnavailable, MemoryQueue, Processor, Reject, RetryLater
from hookline_receiver.answers import FAILED, OVERDUE, REJECTED, retry_later
from hookline_receiver.attempting import Retries, ending
from hookline_receiver.outcome import STOP_GRACE
from hookline_receiver.queues.protocol import Again, Dead, Depth
from tests.support import HANG, run
from tests.support_queues import Clock, accepting, processor_of
from tests.support_receiver import asking, deliver, nothing, receiver, signed, until

if TYPE_CHECKING:
    from hookline_receiver import Receiver
    from hookline_receiver.queues.protocol import Record

RETRIES = Retries(attempts=3, backoff=2.0, max_backoff=5.0)


@pytest.mark.parametrize(
    ("answer", "attempts", "end"),
    [
        (FAILED, 1, Again(2.0, "failed")),
        (FAILED, 2, Again(4.0, "failed")),
        (FAILED, 3, Dead("failed")),
        (OVERDUE, 1, Again(2.0, "overdue")),
        (REJECTED, 1, Dead("rejected")),
        (retry_later(30), 1, Again(30.0, "retry_later")),
        (retry_later(30), 3, Dead("retry_later")),
    ],
)
def test_how_an_attempt_ended_decides_what_becomes_of_it(answer: Any, attempts: int, end: object) -> None:
    assert ending(answer, attempts, RETRIES, 0.0) == end


def test_waits_double_up_to_the_longest_and_jitter_takes_half_at_most() -> None:
    assert [RETRIES.after(attempts, 0.0) for attempts in (1, 2, 3, 5000)] == [2.0, 4.0, 5.0, 5.0]
    assert RETRIES.after(1, 0.999) > 1.0


async def processed(app: Receiver, processor: Processor, deliveries: int = 1) -> list[Record | None]:
    """What became of so many deliveries, once none is open."""
    for number in range(deliveries):
        await deliver(app, delivery_id=f"dlv_{number}")
    async with processor.background():
        await until(processor.depth, lambda depth: depth.open == 0)
    return [await processor.inspect(f"dlv_{number}") for number in range(deliveries)]


def ended(app: Receiver, **options: Any) -> tuple[str, int, str]:
    """State, attempts and reason of one delivery in the end."""
    (record,) = run(processed(app, processor_of(app, **options)))
    assert record is not None
    return record.state, record.attempts, record.reason


def test_what_was_accepted_is_handled_once_with_its_event_and_delivery() -> None:
    async def paid(event: Any, delivery: Delivery) -> None:
        seen.append((event.data.id, delivery.id, delivery.fence))

    seen = list[Any]()
    assert ended(accepting(paid)) == ("done", 1, "")
    assert seen == [("o_1", "dlv_0", 1)]


def test_a_plain_function_runs_in_a_thread() -> None:
    seen = list[bool]()
    app = accepting(lambda event: seen.append(threading.current_thread() is threading.main_thread()))
    assert ended(app)[0] == "done"
    assert seen == [False]


def test_a_handler_that_fails_is_run_again_until_it_does_not() -> None:  # cases: E18
    async def paid(event: object, delivery: Delivery) -> None:
        fences.append(delivery.fence)
        if len(fences) < 3:
            raise ValueError

    fences = list[Any]()
    assert ended(accepting(paid)) == ("done", 3, "failed")
    assert fences == [1, 2, 3]


def test_a_delivery_that_always_fails_ends_dead_and_its_body_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    async def paid(event: object) -> None:
        raise ValueError

    app = accepting(paid)
    assert ended(app, attempts=4) == ("dead", 4, "failed")
    assert "delivery dlv_0 was given up after 4 attempts: failed" in caplog.text


@pytest.mark.parametrize("final", [False, True])
def test_a_rejected_delivery_is_dead_at_once(final: bool) -> None:  # noqa: FBT001 - parametrised
    async def paid(event: object) -> None:
        raise Reject(final=final)

    assert ended(accepting(paid)) == ("dead", 1, "rejected")


def test_a_handler_that_asks_for_time_gets_it() -> None:
    async def paid(event: object) -> None:
        raise RetryLater(7)

    async def go() -> Record | None:
        await deliver(app, delivery_id="dlv_0")
        await processor.run_once()
        return await processor.inspect("dlv_0")

    clock = Clock()
    app = accepting(paid, queue=MemoryQueue(allow_volatile=True, clock=clock))
    processor = processor_of(app)
    record = run(go())
    assert record is not None
    assert (record.state, record.reason, record.due_ms) == ("queued", "retry_later", round((clock.now + 7) * 1000))


def test_a_response_of_the_handlers_own_counts_as_it_would_for_the_sender() -> None:
    async def paid(event: object) -> Response:
        return Response(status_code=statuses.pop(0))

    statuses = [500, 302, 200]
    assert ended(accepting(paid))[:2] == ("done", 3)


def test_a_handler_past_its_deadline_is_stopped_and_run_again() -> None:
    async def paid(event: object, delivery: Delivery) -> None:
        if delivery.fence == 1:
            await asyncio.Event().wait()

    assert ended(accepting(paid), handler_deadline=0.01) == ("done", 2, "overdue")


class Renewed(MemoryQueue):
    """A queue that counts how often a lease was renewed."""

    renewed = 0

    async def renew(self, *arguments: Any) -> bool:
        self.renewed += 1
        return await super().renew(*arguments)


def test_a_thread_past_its_deadline_keeps_its_delivery_until_it_ends_and_is_then_done() -> None:
    async def go() -> Depth:
        await deliver(app)
        async with processor.background():
            await until(asking(lambda: begun), bool)
            await asyncio.sleep(STOP_GRACE + 0.1)  # it is given up as overdue
            for _ in range(9):  # three leases
                before, clock.now = stored.renewed, clock.now + 0.1
                await until(asking(lambda: stored.renewed), before.__lt__)
            proceed.set()
            return await until(processor.depth, lambda depth: depth.open == 0)

    def paid(event: object) -> None:
        begun.append(1)
        proceed.wait(HANG)

    begun, proceed, clock = list[int](), threading.Event(), Clock()
    stored = Renewed(allow_volatile=True, clock=clock)
    app = accepting(paid, queue=stored)
    processor = processor_of(app, handler_deadline=0.01, lease=0.3)
    run(go())
    assert (begun, processor.counters["handled"]) == ([1], 1)


def test_an_event_that_this_version_cannot_read_is_tried_again_for_one_that_can() -> None:
    async def go() -> Record | None:
        await deliver(accepting(nothing, queue=stored), delivery_id="dlv_0")
        await until(processor_of(receiver(ledger=stored, mode="accept"), attempts=2).run_once, bool)
        processor = processor_of(accepting(nothing, queue=stored))
        await until(processor.run_once, bool)
        return await processor.inspect("dlv_0")

    stored = MemoryQueue(allow_volatile=True)
    record = run(go())
    assert record is not None
    assert (record.state, record.attempts, record.reason) == ("done", 2, "unhandled")


def test_no_more_handlers_run_at_once_than_said() -> None:
    async def paid(event: object) -> None:
        running.append(1)
        most.append(len(running))
        await asyncio.sleep(0.001)
        running.pop()

    running, most = list[int](), list[int]()
    app = accepting(paid)
    records = run(processed(app, processor_of(app, concurrency=3), deliveries=20))
    assert {record and record.state for record in records} == {"done"}
    assert max(most) == 3


def test_processors_side_by_side_handle_each_delivery_once() -> None:  # cases: E05
    async def go() -> None:
        for number in range(50):
            await deliver(app, delivery_id=f"dlv_{number}")
        one, other = processor_of(app), processor_of(app)
        async with one.background(), other.background():
            await until(one.depth, lambda depth: depth.open == 0)

    seen = list[str]()
    app = accepting(lambda event, delivery: seen.append(delivery.id))
    run(go())
    assert sorted(seen) == sorted(f"dlv_{number}" for number in range(50))


def test_a_failing_delivery_does_not_hold_up_the_others() -> None:  # cases: E07
    async def paid(event: object, delivery: Delivery) -> None:
        if delivery.id == "dlv_0":
            raise ValueError

    app = accepting(paid)
    records = run(processed(app, processor_of(app, attempts=3, concurrency=2), deliveries=30))
    assert [record and record.state for record in records] == ["dead"] + ["done"] * 29


def test_a_delivery_whose_last_attempt_was_lost_ends_dead() -> None:
    async def go() -> Record | None:
        await deliver(app, delivery_id="dlv_0")
        for _ in range(3):
            await stored.take("orders", bytes(16), 1, 10)
            clock.now += 10  # the processor died
            await stored.take("orders", bytes(16), 1, 0)
            clock.now += 10
        await processor.run_once()
        return await processor.inspect("dlv_0")

    clock = Clock()
    stored = MemoryQueue(allow_volatile=True, clock=clock)
    app = accepting(nothing, queue=stored)
    processor = processor_of(app, attempts=3)
    record = run(go())
    assert record is not None
    assert (record.state, record.reason, processor.counters["handled"]) == ("dead", "lost", 0)


def test_dead_letters_are_listed_and_redriven_by_record_or_id() -> None:
    async def paid(event: object, delivery: Delivery) -> None:
        if broken:
            raise Reject

    async def go() -> list[bool]:
        await processed(app, processor, deliveries=3)
        first = await processor.dead_letters(limit=2)
        rest = await processor.dead_letters(after=first[-1])
        letters = [*first, *rest]
        assert {letter.delivery.id for letter in letters if letter.delivery} == {"dlv_0", "dlv_1", "dlv_2"}
        broken.clear()
        redriven = [await processor.redrive(letters[0]), await processor.redrive(letters[0])]
        assert await processor.run_once() == 1
        return [*redriven, await processor.redrive("dlv_0") or await processor.redrive("dlv_1")]

    broken = [1]
    app = accepting(paid)
    processor = processor_of(app)
    assert run(go()) == [True, False, True]


def test_inspect_and_redrive_find_what_is_deduped_by_event() -> None:
    async def paid(event: object) -> None:
        raise Reject

    async def go() -> tuple[object, bool, object]:
        await deliver(app, signed(event_id="evt_1")[1])
        await processor.run_once()
        record = await processor.inspect("evt_1")
        return record and record.state, await processor.redrive("evt_1"), await processor.inspect("evt_2")

    app = accepting(paid, dedupe_by="event_id")
    processor = processor_of(app)
    assert run(go()) == ("dead", True, None)


def test_a_stopping_processor_takes_nothing_more_and_lets_handlers_end() -> None:
    async def paid(event: object) -> None:
        running.set()
        await asyncio.sleep(0.05)

    async def go() -> Depth:
        for number in range(2):
            await deliver(app, delivery_id=f"dlv_{number}")
        async with processor.background():
            await running.wait()
        return await processor.depth()

    running, app = asyncio.Event(), accepting(paid)
    processor = processor_of(app, concurrency=1)
    assert run(go()).open == 1
    assert processor.counters["handled"] == 1


def test_a_stopping_processor_gives_back_what_does_not_end_in_time() -> None:
    async def paid(event: object) -> None:
        running.set()
        await asyncio.Event().wait()

    async def go() -> Record | None:
        await deliver(app, delivery_id="dlv_0")
        async with processor.background():
            await running.wait()
        return await processor.inspect("dlv_0")

    running, app = asyncio.Event(), accepting(paid)
    processor = processor_of(app, grace=0.01)
    record = run(go())
    assert record is not None
    assert (record.state, record.reason, record.attempts) == ("queued", "stopped", 1)


class Faulty(MemoryQueue):
    """A queue of which some steps cannot be asked."""

    def __init__(self, *down: str) -> None:
        super().__init__(allow_volatile=True)
        self.down = set(down)

    async def take(self, *arguments: Any) -> Any:
        self._ask("take")
        return await super().take(*arguments)

    async def settle(self, *arguments: Any) -> Any:
        self._ask("settle")
        return await super().settle(*arguments)

    def _ask(self, name: str) -> None:
        if name in self.down:
            raise LedgerUnavailable(name)


def test_an_end_that_is_another_processors_to_tell_counts_as_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        await deliver(app, delivery_id="dlv_0")
        (mine,) = await stored.take("orders", bytes(16), 60, 1)
        await processor._settle(replace(mine, fence=9), Dead("rejected"))

    stored = MemoryQueue(allow_volatile=True)
    app = accepting(nothing, queue=stored)
    processor = processor_of(app)
    run(go())
    assert (dict(processor.counters), caplog.messages) == ({}, [])


def test_a_processor_waits_for_its_store(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        await deliver(app)
        async with processor.background():
            await until(asking(lambda: caplog.messages), bool)
            stored.down.clear()
            await until(processor.depth, lambda depth: depth.open == 0)

    monkeypatch.setattr("hookline_receiver.processor.PAUSE", 0.01)
    stored = Faulty("take")
    app = accepting(nothing, queue=stored)
    processor = processor_of(app)
    with caplog.at_level(logging.WARNING):
        run(go())
    assert "a processor waits for its store" in caplog.text


def test_an_effect_that_cannot_be_recorded_is_counted_and_comes_again() -> None:
    async def go() -> None:
        await deliver(app)
        await processor.run_once()
        stored.down.clear()
        await until(processor.run_once, bool)

    seen, stored = list[object](), Faulty("settle")
    app = accepting(seen.append, queue=stored)
    processor = processor_of(app, lease=0.05)
    run(go())
    assert (processor.counters["effect_unrecorded"], len(seen)) == (1, 2)


@pytest.mark.parametrize(
    "options", [{"attempts": 0}, {"concurrency": 0}, {"backoff": 0}, {"lease": float("nan")}, {"poll": -1}]
)
def test_an_impossible_processor_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidReceiver):
        processor_of(accepting(nothing), **options)


def test_a_processor_needs_a_receiver_in_accept_mode() -> None:
    with pytest.raises(InvalidReceiver, match='mode="accept"'):
        Processor(receiver())
    with pytest.raises(InvalidReceiver, match=r'mode="accept".*, not str'):
        Processor(cast("Any", "orders"))
