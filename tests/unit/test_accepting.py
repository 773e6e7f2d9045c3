"""A receiver in accept mode: what it stores, and what it answers."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

from hookline_receiver import InvalidReceiver, LedgerUnavailable, MemoryLedger, MemoryQueue, WebhookMiddleware
from hookline_receiver.queues.protocol import Again, Dead, Finished
from hookline_receiver.testing import AsyncDeliveryClient
from tests.support import run
from tests.support_queues import Clock, accepting, processor_of
from tests.support_receiver import Order, Reply, call, deliver, nothing, receiver, signed

if TYPE_CHECKING:
    from hookline_receiver.queues.protocol import Ending

REPLAYED = b"x-axiom-replayed"


class Down(MemoryQueue):
    """A queue that cannot be asked."""

    async def put(self, *_: Any) -> Any:
        raise LedgerUnavailable

    async def find(self, *_: Any) -> Any:
        raise LedgerUnavailable


def queue(**options: Any) -> MemoryQueue:
    return MemoryQueue(allow_volatile=True, **options)


def test_a_delivery_is_answered_202_before_anything_is_handled() -> None:
    seen: list[object] = []
    app = accepting(seen.append)
    assert run(deliver(app)).status == 202
    assert seen == []
    assert app.counters["accepted"] == 1


@pytest.mark.parametrize("how", [None, Again(60, "failed"), Finished(), Dead("rejected")], ids=str)
def test_a_repeat_is_answered_202_whatever_became_of_it(how: Ending | None) -> None:
    async def go() -> list[Reply]:
        request, stored = signed(), queue()
        app = accepting(nothing, queue=stored)
        replies = [await call(app, *request)]
        if how is not None:
            (taken,) = await stored.take("orders", bytes(16), 60, 1)
            await stored.settle("orders", taken, how)
        replies.append(await call(app, *request))
        assert (await stored.depth("orders")).open == (1 if how is None or isinstance(how, Again) else 0)
        return replies

    assert [(reply.status, REPLAYED in reply.headers) for reply in run(go())] == [(202, False), (202, True)]


def test_a_repeat_while_the_handler_runs_is_answered_at_once() -> None:
    async def go() -> Reply:
        async def paid(event: object) -> None:
            running.set()
            await proceed.wait()

        running, proceed, request = asyncio.Event(), asyncio.Event(), signed()
        app = accepting(paid)
        await call(app, *request)
        async with processor_of(app).background():
            await running.wait()
            reply = await call(app, *request)
            proceed.set()
        return reply

    assert run(go()).headers[REPLAYED] == b"true"


def test_another_body_under_the_same_id_is_409() -> None:
    async def go() -> Reply:
        app = accepting(nothing)
        await deliver(app, delivery_id="dlv_1")
        return await deliver(app, b'{"type":"order.paid","data":{"id":"o_2"}}', delivery_id="dlv_1")

    assert run(go()).status == 409


@pytest.mark.parametrize("stored", [Down(allow_volatile=True), queue(max_rows=1)], ids=["down", "full"])
def test_what_cannot_be_stored_is_503_so_that_its_sender_keeps_it(stored: MemoryQueue) -> None:
    async def go() -> Reply:
        app = accepting(nothing, queue=stored)
        await deliver(app)
        return await deliver(app)

    reply = run(go())
    assert reply.status == 503
    assert int(reply.headers[b"retry-after"]) >= 1


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"no JSON", 422), (b'{"type":"order.paid","data":{}}', 422), (b'{"type":"other","data":{}}', 204)],
)
def test_what_no_handler_could_take_is_answered_and_not_stored(body: bytes, status: int) -> None:
    app = accepting(nothing, queue=(stored := queue()))
    assert run(deliver(app, body)).status == status
    assert stored._rows == {}


def test_an_accepted_event_is_202_also_when_the_model_has_become_stricter() -> None:
    class Strict(Order):
        more: str

    async def go() -> Reply:
        stored, request = queue(), signed()
        await call(accepting(nothing, queue=stored), *request)
        strict = receiver(ledger=stored, mode="accept")
        strict.on("order.paid", Strict)(nothing)
        return await call(strict, *request)

    assert run(go()).headers[REPLAYED] == b"true"


def test_one_event_by_two_ways_is_stored_once_when_asked() -> None:
    async def go() -> int:
        app = accepting(nothing, queue=(stored := queue()), dedupe_by="event_id")
        for delivery_id in ("dlv_1", "dlv_2"):
            await deliver(app, signed(event_id="evt_1")[1], delivery_id=delivery_id)
        return (await stored.depth("orders")).open

    assert run(go()) == 1


def test_a_backlog_that_nobody_works_on_is_counted_and_logged_with_its_age(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> int:
        clock = Clock()
        stored = queue(clock=clock)
        await deliver(accepting(nothing, queue=stored))
        clock.now += 90
        app = accepting(nothing, queue=stored)
        await deliver(app)
        await asyncio.sleep(0)
        await deliver(app)  # looked at a moment ago
        await asyncio.sleep(0)
        return app.counters["backlog_late"]

    assert run(go()) == 1
    assert "2 accepted deliveries of receiver 'orders' are not handled, the oldest has been due for 90 s" in caplog.text


def test_a_backlog_that_is_worked_on_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        await deliver(app)
        await asyncio.sleep(0)

    app = accepting(nothing)
    with caplog.at_level(logging.WARNING):
        run(go())
    assert (app.counters["backlog_late"], caplog.messages) == (0, [])


def test_a_client_that_leaves_does_not_keep_its_delivery_from_being_stored() -> None:
    async def go() -> int:
        client = asyncio.create_task(deliver(app))
        await asyncio.sleep(0)  # it begins to be stored
        client.cancel()
        await asyncio.wait({client})
        return (await stored.depth("orders")).open

    app = accepting(nothing, queue=(stored := queue()))
    assert run(go()) == 1


@pytest.mark.parametrize(
    ("ledger", "mode"), [(MemoryLedger(allow_volatile=True), "accept"), (queue(), "handle"), (queue(), "store")]
)
def test_mode_and_ledger_have_to_fit(ledger: Any, mode: Any) -> None:
    with pytest.raises(InvalidReceiver, match="mode"):
        receiver(ledger=ledger, mode=mode)


def test_a_middleware_refuses_a_receiver_that_leaves_handling_to_a_processor() -> None:
    async def app(*_: Any) -> None:
        """Answer nothing."""

    with pytest.raises(InvalidReceiver, match="WebhookMiddleware"):
        WebhookMiddleware(app, receiver=receiver(ledger=queue(), mode="accept"), path="/")


def test_a_memory_queue_has_to_be_asked_for() -> None:
    with pytest.raises(InvalidReceiver, match="loses what it accepted"):
        MemoryQueue()


def test_the_delivery_client_gives_an_accepting_receiver_a_queue_that_a_processor_works_on() -> None:
    async def go() -> tuple[int, int, list[str]]:
        async with AsyncDeliveryClient(app, "/", receiver=app) as client:
            reply = await client.deliver("order.paid", Order(id="o_7"))
            handled = await processor_of(app).run_once()
        return reply.status, handled, seen

    seen = list[str]()
    app = accepting(lambda event: seen.append(event.data.id))
    assert run(go()) == (202, 1, ["o_7"])
