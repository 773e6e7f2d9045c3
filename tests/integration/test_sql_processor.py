"""A processor over a SqlQueue: that a delivery is done and what its handler wrote are one commit."""

from __future__ import annotations

import asyncio
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Engine, MetaData, insert, select, update
from sqlalchemy import inspect as inspecting

from hookline_receiver import Delivery, InvalidReceiver, Reject, revision_table
from tests.support_queues import QUEUE, accepting, processor_of, queue_of
from tests.support_receiver import deliver, until
from tests.support_sql import EFFECTS, SQLITE, shop_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hookline_receiver import Processor, Receiver
    from hookline_receiver.queues.protocol import Record
    from tests.support_sql import Shop

    Then = Callable[[Delivery[Any]], object]

PAGE = Path(__file__).parents[2] / "docs" / "accepting.md"


@pytest.fixture(params=[*SQLITE, "postgresql+asyncpg", "postgresql+psycopg"])
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    with shop_of(request.param, request) as opened:
        yield opened


def booking(shop: Shop, then: Then = lambda delivery: None) -> Receiver:
    """A receiver whose handler books the order, and then does something."""

    def book(event: Any, delivery: Delivery[Any]) -> None:
        delivery.session.execute(insert(EFFECTS).values(id=event.data.id))
        then(delivery)

    async def book_on_loop(event: Any, delivery: Delivery[Any]) -> None:
        await delivery.session.execute(insert(EFFECTS).values(id=event.data.id))
        if inspect.isawaitable(done := then(delivery)):
            await done

    handler = book if isinstance(shop.engine, Engine) else book_on_loop
    return accepting(handler, queue=queue_of(shop))


def ended(shop: Shop, app: Receiver, processor: Processor) -> Record:
    """What became of one order, once nothing is open."""

    async def go() -> Record | None:
        async with app.lifespan():
            assert (await deliver(app, delivery_id="dlv_0")).status == 202
            async with processor.background():
                await until(processor.depth, lambda depth: depth.open == 0)
            return await processor.inspect("dlv_0")

    record = shop.run(go())
    assert record is not None
    return record


def test_a_handlers_effect_and_its_deliverys_end_are_committed_together(shop: Shop) -> None:
    app = booking(shop)
    processor = processor_of(app)
    record = ended(shop, app, processor)
    assert (record.state, record.delivery, shop.effects()) == ("done", None, ["o_1"])
    assert processor.counters["handled"] == 1


def test_a_failed_attempt_leaves_nothing_and_the_next_one_its_effect(shop: Shop) -> None:  # cases: E18
    def then(delivery: Delivery[Any]) -> None:
        fences.append(1)
        if len(fences) < 3:
            raise ValueError

    fences = list[int]()
    app = booking(shop, then)
    record = ended(shop, app, processor_of(app))
    assert (record.state, record.attempts, shop.effects()) == ("done", 3, ["o_1"])


@pytest.mark.parametrize("error", [ValueError(), Reject(), Reject(final=True)], ids=repr)
def test_a_dead_letter_left_nothing_and_has_its_effect_after_a_redrive(shop: Shop, error: Exception) -> None:
    def then(delivery: Delivery[Any]) -> None:
        if broken:
            raise error

    async def redriven() -> int:
        broken.clear()
        assert await processor.redrive("dlv_0")
        return await processor.run_once()

    broken = [1]
    app = booking(shop, then)
    processor = processor_of(app, attempts=2)
    assert ended(shop, app, processor).state == "dead"
    assert shop.effects() == []
    assert shop.run(redriven()) == 1
    assert shop.effects() == ["o_1"]


def test_an_attempt_that_was_lost_to_another_processor_runs_no_handler(shop: Shop) -> None:
    def then(delivery: Delivery[Any]) -> None:
        seen.append(1)

    async def go() -> None:
        async with app.lifespan():
            await deliver(app, delivery_id="dlv_0")
            (lost,) = await queue.take("orders", bytes(16), 60, 1)
            with shop.observer.begin() as connection:  # it lapsed, and another took it
                connection.execute(update(QUEUE).values(fence=QUEUE.c.fence + 1))
            await processor._attempted(lost)

    seen, queue = list[int](), queue_of(shop)
    app = booking(shop, then)
    processor = processor_of(app)
    shop.run(go())
    assert (seen, shop.effects(), processor.counters["handled"]) == ([], [], 0)


def test_a_handler_that_ends_the_transaction_itself_is_found_out(shop: Shop) -> None:
    app = booking(shop, lambda delivery: delivery.session.rollback())
    record = ended(shop, app, processor_of(app, attempts=1))
    assert (record.state, shop.effects()) == ("dead", [])


def test_two_processors_side_by_side_book_each_order_once(shop: Shop) -> None:  # cases: E05, E15
    async def go() -> None:
        async with app.lifespan():
            for number in range(12):
                body = b'{"type":"order.paid","data":{"id":"%d"}}' % number
                await deliver(app, body, delivery_id=f"dlv_{number}")
            one, other = processor_of(app), processor_of(app)
            async with one.background(), other.background():
                await until(one.depth, lambda depth: depth.open == 0)

    app = booking(shop)
    shop.run(go())
    assert sorted(map(int, shop.effects())) == list(range(12))


def test_32_copies_at_once_are_stored_and_booked_once(shop: Shop) -> None:  # cases: E17
    async def go() -> set[int]:
        async with app.lifespan():
            copies = (deliver(app, delivery_id="dlv_0", event_id="evt_0") for _ in range(32))
            statuses = {reply.status for reply in await asyncio.gather(*copies)}
            while await processor_of(app).run_once():
                pass
            return statuses

    app = booking(shop)
    assert shop.run(go()) <= {202, 503}
    assert shop.effects() == ["o_1"]


def test_a_body_is_stored_as_bytes_whatever_is_in_it(shop: Shop) -> None:  # cases: E24
    async def go() -> bytes:
        async with app.lifespan():
            body = b'{"type":"order.paid","data":{"id":"\\u0000 \\ud800"}}'
            assert (await deliver(app, body)).status in {202, 422}
            body = b'{"type":"order.paid","data":{"id":"\\u0000"}}'
            assert (await deliver(app, body)).status == 202
            with shop.observer.connect() as connection:
                return bytes(connection.scalars(select(QUEUE.c.body)).one())

    app = booking(shop)
    assert shop.run(go()) == b'{"type":"order.paid","data":{"id":"\\u0000"}}'


@pytest.mark.parametrize("driver", ["sqlite", "postgresql+psycopg"])
def test_the_tables_that_the_page_makes_by_hand_are_those_of_the_metadata(
    request: pytest.FixtureRequest, driver: str
) -> None:
    (script,) = re.findall(r"```sql\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    with shop_of(driver, request) as shop:
        shop.execute(*script.replace("BYTEA", "BLOB" if driver == "sqlite" else "BYTEA").split(";")[:-1])
        seen = inspecting(shop.observer)
        for table in (QUEUE, revision_table(MetaData())):
            indexes = {index["name"] for index in seen.get_indexes(table.name)}
            assert [column["name"] for column in seen.get_columns(table.name)] == list(table.columns.keys())
            assert indexes == {index.name for index in table.indexes}
        app = booking(shop)
        assert ended(shop, app, processor_of(app)).state == "done"


def test_handlers_of_the_wrong_kind_are_refused_when_they_are_declared(shop: Shop) -> None:
    async def on_loop(event: object) -> None: ...

    def in_thread(event: object) -> None: ...

    with pytest.raises(InvalidReceiver, match="must be declared with"):
        accepting(on_loop if isinstance(shop.engine, Engine) else in_thread, queue=queue_of(shop))
