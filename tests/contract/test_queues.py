"""What every queue of accepted deliveries promises, on each of them; the clocks are the stores' own."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from hookline_receiver import Delivery
from hookline_receiver.ledger.protocol import Conflict, Entry, Full
from hookline_receiver.queues.memory import MemoryQueue
from hookline_receiver.queues.protocol import Again, Dead, Depth, Finished, Known, Queued, Taken
from hookline_receiver.queues.redis import RedisQueue
from tests.support import run
from tests.support_queues import queue_of
from tests.support_receiver import leg_server, until
from tests.support_sql import SQLITE, shop_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from hookline_receiver.queues.protocol import Queue
    from hookline_sender.embedded import EmbeddedServer

    Open = Callable[..., contextlib.AbstractAsyncContextManager[Queue]]

NAME = "orders"
pytestmark = pytest.mark.usefixtures("unhurried")
LONG, SHORT = 60.0, 0.05
NOW = (0, b"")


@pytest.fixture(
    scope="module", params=["memory", "redis", "valkey", *SQLITE, "postgresql+asyncpg", "postgresql+psycopg"]
)
def store(request: pytest.FixtureRequest) -> Iterator[EmbeddedServer | str]:
    """A server of each supported kind, and the name of a store that needs none of its own."""
    if request.param not in {"redis", "valkey"}:
        yield request.param
        return
    with leg_server(request.param) as running:
        yield running


@pytest.fixture
def queues(store: EmbeddedServer | str, namespace: str, request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens an empty queue; options are those of its constructor."""
    with contextlib.ExitStack() as stack:
        database = (
            None if store == "memory" or not isinstance(store, str) else stack.enter_context(shop_of(store, request))
        )

        @contextlib.asynccontextmanager
        async def opened(**options: Any) -> AsyncIterator[Queue]:
            if database is not None:
                queue: Queue = queue_of(database, **{"prune_interval": 0.05, **options})
            elif isinstance(store, str):
                queue = MemoryQueue(allow_volatile=True, **options)
            else:
                queue = RedisQueue(store.url, namespace=namespace, **options)
            try:
                async with queue.opened():
                    yield queue
            finally:
                if database is not None:
                    await database._disposed()

        yield opened


def delivery(identity: str = "dlv_1", body: bytes = b"{}") -> Delivery:
    return Delivery(identity, "order.paid", 1_767_225_600_000, 1, None, "application/json", body)


def entry(one: Delivery) -> Entry:
    return Entry.of(NAME, one.id, body=one.body)


async def put(queue: Queue, one: Delivery | None = None) -> object:
    one = one or delivery()
    return await queue.put(NAME, entry(one), one)


async def take(queue: Queue, lease: float = LONG, limit: int = 100) -> list[Taken]:
    return list(await queue.take(NAME, secrets.token_bytes(16), lease, limit))


async def taken(queue: Queue, lease: float = LONG) -> Taken:
    """One delivery, as soon as one is due."""
    (one,) = await until(lambda: take(queue, lease, 1), bool)
    return one


async def ended(queue: Queue, how: Finished | Dead, one: Delivery | None = None) -> Taken:
    """A delivery that was stored, taken and ended."""
    await put(queue, one)
    mine = await taken(queue)
    assert await queue.settle(NAME, mine, how)
    return mine


def test_what_is_put_is_taken_as_it_was_with_the_first_fence(queues: Open) -> None:
    async def go() -> None:
        async with queues() as queue:
            one = delivery(body=b'{"\x00":"\xff"}')
            assert await put(queue, one) == Queued()
            mine = await taken(queue)
            assert (mine.key, mine.delivery, mine.fence, mine.attempts) == (entry(one).key, one, 1, 1)
            assert await take(queue) == []

    run(go())


def test_whatever_the_sender_wrote_in_headers_is_kept(queues: Open) -> None:  # cases: E24
    async def go() -> None:
        async with queues() as queue:
            one = replace(delivery("i" * 300 + "\x00"), type="\udc80\x00é", content_type="\xe9", timestamp_ms=None)
            await put(queue, one)
            assert (await taken(queue)).delivery == one

    run(go())


def test_a_repeat_is_known_by_its_state_and_stored_once(queues: Open) -> None:
    async def go() -> None:
        async with queues() as queue:
            states = [await put(queue), await put(queue)]
            mine = await taken(queue)
            states.append(await put(queue))
            await queue.settle(NAME, mine, Finished())
            assert [*states, await put(queue)] == [Queued(), Known("queued"), Known("running"), Known("done")]
            assert await take(queue) == []

    run(go())


def test_a_dead_letter_is_known_and_not_taken(queues: Open) -> None:
    async def go() -> None:
        async with queues() as queue:
            await ended(queue, Dead("rejected"))
            assert await put(queue) == Known("dead") == await queue.find(NAME, entry(delivery()))
            assert await take(queue) == []

    run(go())


@pytest.mark.parametrize("how", [None, Again(0, "failed"), Dead("rejected"), Finished()], ids=str)
def test_another_body_is_a_conflict_in_every_state(queues: Open, how: Any) -> None:
    async def go() -> None:
        async with queues() as queue:
            await put(queue)
            if how is not None:
                await queue.settle(NAME, await taken(queue), how)
            other = delivery(body=b"[]")
            assert await put(queue, other) == Conflict() == await queue.find(NAME, entry(other))

    run(go())


def test_of_32_puts_at_once_one_stores(queues: Open) -> None:
    async def go() -> None:
        async with queues() as queue:
            answers = await asyncio.gather(*(put(queue) for _ in range(32)))
            assert answers.count(Queued()) == 1
            assert answers.count(Known("queued")) == 31

    run(go())


def test_processors_side_by_side_take_each_delivery_once(queues: Open) -> None:  # cases: E05, E15
    async def go() -> None:
        async with queues() as queue:
            for number in range(40):
                await put(queue, delivery(f"dlv_{number}"))
            batches = await asyncio.gather(*(take(queue, limit=4) for _ in range(10)))
            keys = [one.key for batch in batches for one in batch]
            assert len(keys) == len(set(keys)) == 40

    run(go())


def test_the_longest_due_is_taken_first(queues: Open) -> None:
    async def go() -> None:
        async with queues() as queue:
            for number in range(4):
                await put(queue, delivery(f"dlv_{number}"))
                await asyncio.sleep(0.002)  # moments are whole milliseconds
            assert [(await taken(queue)).delivery.id for _ in range(4)] == [f"dlv_{number}" for number in range(4)]

    run(go())


def test_receivers_that_share_a_queue_have_rows_of_their_own(queues: Open) -> None:
    async def go() -> None:
        async with queues() as queue:
            one = delivery()
            await put(queue, one)
            other = Entry.of("{other} é", one.id, body=one.body)
            assert await queue.put("{other} é", other, one) == Queued()
            assert len(await queue.take("{other} é", bytes(16), LONG, 10)) == 1
            assert (await queue.depth(NAME)).open == 1

    run(go())


def test_an_attempt_to_be_repeated_comes_back_when_due_with_the_next_fence(queues: Open) -> None:
    async def go() -> None:
        async with queues() as queue:
            await put(queue)
            mine = await taken(queue)
            assert await queue.settle(NAME, mine, Again(0.1, "failed"))
            waiting = await queue.look(NAME, mine.key)
            again = await taken(queue)
            assert (again.fence, again.attempts) == (2, 2)
            told = await queue.look(NAME, again.key)
            assert told is not None
            assert (told.state, told.reason) == ("running", "failed")
            assert waiting is not None
            assert waiting.changed_ms + 98 <= (waiting.due_ms or 0) <= told.changed_ms + 1  # each is rounded

    run(go())


def test_a_lapsed_attempt_comes_back_and_its_fence_is_lost(queues: Open) -> None:
    async def go() -> None:
        async with queues() as queue:
            await put(queue)
            late = await taken(queue, SHORT)
            successor = await taken(queue)
            assert (successor.fence, successor.attempts) == (2, 2)
            assert not await queue.renew(NAME, late, LONG)
            for how in (Finished(), Again(0, "failed"), Dead("rejected")):
                assert not await queue.settle(NAME, late, how)
            assert await queue.settle(NAME, successor, Finished())

    run(go())


def test_a_lapsed_attempt_that_nobody_followed_can_still_be_finished(queues: Open) -> None:
    async def go() -> None:
        async def lapsed() -> str:
            assert await take(queue) == []
            told = await queue.look(NAME, late.key)
            return told.state if told else ""

        async with queues() as queue:
            await put(queue)
            late = await taken(queue, 0.001)
            await until(lapsed, lambda state: state == "queued")
            assert await queue.settle(NAME, late, Finished())
            assert await put(queue) == Known("done")

    run(go())


@pytest.mark.parametrize("forge", [{"owner": bytes(16)}, {"fence": 2}], ids=lambda forge: next(iter(forge)))
def test_only_owner_and_fence_together_settle_an_attempt(queues: Open, forge: dict[str, Any]) -> None:
    async def go() -> None:
        async with queues() as queue:
            await put(queue)
            mine = await taken(queue)
            assert not await queue.settle(NAME, replace(mine, **forge), Finished())
            assert not await queue.renew(NAME, replace(mine, **forge), LONG)
            assert await queue.settle(NAME, mine, Finished())

    run(go())


def test_a_renewed_attempt_outlives_its_first_lease(queues: Open) -> None:
    async def go() -> None:
        async with queues() as queue:
            await put(queue)
            mine = await taken(queue, 0.2)
            assert await queue.renew(NAME, mine, LONG)
            await asyncio.sleep(0.25)  # beyond the first lease
            assert await take(queue) == []
            assert await queue.settle(NAME, mine, Finished())

    run(go())


@pytest.mark.parametrize("how", [Again(LONG, "failed"), Dead("rejected"), Finished()], ids=str)
def test_settling_twice_is_answered_alike_and_writes_once(queues: Open, how: Any) -> None:
    async def go() -> None:
        async with queues() as queue:
            await put(queue)
            mine = await taken(queue)
            assert await queue.settle(NAME, mine, how)
            told = await queue.look(NAME, mine.key)
            assert await queue.settle(NAME, mine, how)
            assert await queue.look(NAME, mine.key) == told

    run(go())


def test_a_done_delivery_is_known_for_its_retention_without_its_body(queues: Open) -> None:
    async def go() -> None:
        async with queues(max_rows=1) as queue:
            mine = await ended(queue, Finished())
            told = await queue.look(NAME, mine.key)
            assert told is not None
            assert (told.state, told.delivery, told.due_ms) == ("done", None, None)
            assert await put(queue, delivery("dlv_2")) == Full()

    run(go())


def test_a_done_delivery_makes_room_when_its_retention_is_over(queues: Open) -> None:
    async def go() -> None:
        async with queues(retention=1, max_rows=1) as queue:
            mine = await ended(queue, Finished())
            assert await until(lambda: put(queue, delivery("dlv_2")), lambda got: got != Full()) == Queued()
            assert await queue.look(NAME, mine.key) is None

    run(go())


def test_a_full_queue_refuses_new_deliveries_and_keeps_the_old(queues: Open) -> None:
    async def go() -> None:
        async with queues(max_rows=2) as queue:
            await put(queue, delivery("dlv_1"))
            await put(queue, delivery("dlv_2"))
            assert await put(queue, delivery("dlv_3")) == Full()
            assert await put(queue, delivery("dlv_1")) == Known("queued")
            assert {one.delivery.id for one in await take(queue)} == {"dlv_1", "dlv_2"}

    run(go())


def test_dead_letters_are_told_in_order_and_page_by_page(queues: Open) -> None:
    async def go() -> None:
        async with queues() as queue:
            for number in range(5):
                await ended(queue, Dead(f"reason_{number}"), delivery(f"dlv_{number}"))
            told, after = list[str](), NOW
            while page := await queue.dead_letters(NAME, after, 2):
                told += [one.reason for one in page]
                after = (page[-1].changed_ms, page[-1].key)
            assert sorted(told) == [f"reason_{number}" for number in range(5)]
            first = (await queue.dead_letters(NAME, NOW, 1))[0]
            assert (first.state, first.attempts, first.due_ms) == ("dead", 1, None)
            assert first.delivery is not None

    run(go())


def test_a_redriven_dead_letter_begins_anew_with_the_next_fence(queues: Open) -> None:
    async def go() -> None:
        async with queues() as queue:
            dead = await ended(queue, Dead("rejected"))
            assert await queue.redrive(NAME, dead.key)
            assert not await queue.redrive(NAME, dead.key)
            again = await taken(queue)
            assert (again.delivery, again.attempts, again.fence) == (dead.delivery, 1, 2)
            assert list(await queue.dead_letters(NAME, NOW, 10)) == []

    run(go())


def test_a_redriven_dead_letter_outlives_the_retention_of_the_dead(queues: Open) -> None:
    async def go() -> None:
        async with queues(dead_retention=4) as queue:
            redriven = await ended(queue, Dead("rejected"), delivery("dlv_1"))
            other = await ended(queue, Dead("rejected"), delivery("dlv_2"))
            await queue.redrive(NAME, redriven.key)
            await until(lambda: queue.look(NAME, other.key), lambda told: told is None)
            await put(queue, delivery("dlv_3"))  # makes room, where that is done by the way
            assert {one.delivery.id for one in await take(queue)} == {"dlv_1", "dlv_3"}

    run(go())


def test_only_dead_letters_are_redriven(queues: Open) -> None:
    async def go() -> None:
        async with queues() as queue:
            mine = await ended(queue, Finished())
            assert not await queue.redrive(NAME, mine.key)
            assert not await queue.redrive(NAME, bytes(32))
            assert await take(queue) == []

    run(go())


def test_a_dead_letter_past_its_retention_is_gone(queues: Open) -> None:
    async def go() -> None:
        async with queues(dead_retention=1) as queue:
            dead = await ended(queue, Dead("rejected"))
            await until(lambda: queue.look(NAME, dead.key), lambda told: told is None)
            assert list(await queue.dead_letters(NAME, NOW, 10)) == []
            assert not await queue.redrive(NAME, dead.key)
            assert await put(queue) == Queued()

    run(go())


def test_the_depth_tells_what_waits_and_for_how_long(queues: Open) -> None:
    async def go() -> None:
        async with queues() as queue:
            assert await queue.depth(NAME) == Depth(0, 0, 0)
            await ended(queue, Dead("rejected"), delivery("dlv_1"))
            await put(queue, delivery("dlv_2"))
            await until(lambda: queue.depth(NAME), lambda depth: depth.overdue >= 0.01)
            await taken(queue)
            assert await queue.depth(NAME) == Depth(1, 1, 0)

    run(go())


def test_what_lapsed_together_comes_back_apart(queues: Open) -> None:
    async def go() -> None:
        async with queues() as queue:
            for number in range(16):
                await put(queue, delivery(f"dlv_{number}"))
            lapsed = await take(queue, 0.001)
            await asyncio.sleep(0.01)  # ten leases
            assert len(await take(queue)) < 8  # within the next two seconds they come, and this took some of that
            told = [await queue.look(NAME, one.key) for one in lapsed]
            assert {one.state for one in told if one} <= {"queued", "running"}
            assert len({one.due_ms for one in told if one}) > 2

    run(go())
