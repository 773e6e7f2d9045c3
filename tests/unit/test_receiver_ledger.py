"""A receiver and its ledger, also when that is out of order or everything ends."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from hookline_receiver import Delivery, Receiver, Reject
from tests.support import HANG, run
from tests.support_receiver import (
    KEY,
    NOW_MS,
    Ledger,
    Order,
    Reply,
    asking,
    call,
    deliver,
    handled_by,
    nothing,
    receiver,
    signed,
    until,
)


@pytest.mark.parametrize("ledger", [Ledger("claim"), Ledger(max_rows=0)], ids=["down", "full"])
def test_without_a_claim_nothing_is_handled(ledger: Ledger) -> None:  # cases: E23
    seen: list[object] = []
    reply = run(deliver(handled_by(seen.append, ledger=ledger)))
    assert reply.status == 503
    assert int(reply.headers[b"retry-after"]) >= 1
    assert seen == []


def test_an_effect_that_cannot_be_recorded_is_counted_and_comes_again() -> None:
    app = handled_by(nothing, ledger=Ledger("complete"), lease=0.05)
    assert run(deliver(app)).status == 503
    assert app.counters["effect_unrecorded"] == 1


def test_an_unrecorded_effect_is_counted_when_nobody_waits_for_the_answer_any_more() -> None:
    async def go() -> None:
        client = asyncio.create_task(deliver(app))
        await until(asking(lambda: ledger.asked.count("complete")), bool)
        client.cancel()
        await until(asking(lambda: app.counters["effect_unrecorded"]), bool)

    ledger = Ledger("complete")
    app = handled_by(nothing, ledger=ledger, lease=0.3)
    run(go())
    assert app.counters["effect_unrecorded"] == 1


def test_the_unrecorded_effect_of_a_thread_past_its_deadline_is_counted() -> None:
    async def go() -> Reply:
        reply = await deliver(app)
        proceed.set()
        await until(asking(lambda: app.counters["effect_unrecorded"]), bool)
        return reply

    proceed = threading.Event()
    app = handled_by(lambda event: proceed.wait(HANG), ledger=Ledger("complete"), lease=0.05, handler_deadline=0.01)
    assert run(go()).status == 503


def test_recording_is_tried_again_while_the_claim_is_believed() -> None:
    async def go() -> Reply:
        delivered = asyncio.create_task(deliver(app))
        await until(asking(lambda: ledger.asked.count("complete")), lambda tries: tries > 1)
        ledger.down.clear()
        return await delivered

    ledger = Ledger("complete")
    app = handled_by(nothing, ledger=ledger)
    assert run(go()).status == 204
    assert app.counters["effect_unrecorded"] == 0


def test_a_lost_fence_at_the_end_is_counted_and_the_success_is_answered() -> None:
    async def paid(event: object, delivery: Delivery) -> None:
        ledger._rows.clear()

    ledger = Ledger()
    app = handled_by(paid, ledger=ledger)
    assert run(deliver(app)).status == 204
    assert app.counters["fence_lost"] == 1


def test_a_fence_lost_while_the_handler_runs_is_counted_once() -> None:
    async def paid(event: object) -> None:
        ledger._rows.clear()
        await until(asking(lambda: app.counters["fence_lost"]), bool)

    ledger = Ledger()
    app = handled_by(paid, ledger=ledger, lease=0.03)
    assert run(deliver(app)).status == 204
    assert app.counters["fence_lost"] == 1


def test_a_handler_that_outlives_its_lease_is_run_again_and_its_success_is_counted_as_doubtful() -> None:
    async def go() -> tuple[Reply, Reply]:
        async def paid(event: object, delivery: Delivery) -> None:
            fences.append(delivery.fence)
            if delivery.fence == 1:
                await taken_over.wait()

        fences, taken_over, request = list[int | None](), asyncio.Event(), signed()
        first, second = (handled_by(paid, ledger=ledger, lease=0.1) for _ in range(2))
        slow = asyncio.create_task(call(first, *request))
        await until(asking(lambda: fences), bool)
        quick = await call(second, *request)
        taken_over.set()
        late = await slow
        assert (fences, first.counters["fence_lost"], second.counters["fence_lost"]) == ([1, 2], 1, 0)
        return quick, late

    ledger = Ledger("renew")
    assert [reply.status for reply in run(go())] == [204, 204]


def test_a_claim_that_cannot_be_released_does_not_change_the_answer() -> None:
    def paid(event: object) -> None:
        raise Reject

    assert run(deliver(handled_by(paid, ledger=Ledger("release")))).status == 422


def test_a_row_is_known_by_endpoint_so_that_two_receivers_share_a_ledger() -> None:
    async def go() -> list[Reply]:
        request = signed()
        return [await call(app, *request) for app in receivers]

    ledger, seen = Ledger(), list[object]()
    receivers = [Receiver(name, keys=KEY, ledger=ledger, clock=lambda: NOW_MS) for name in ("one", "two")]
    for app in receivers:
        app.on("order.paid", Order)(seen.append)
    assert [reply.status for reply in run(go())] == [204, 204]
    assert len(seen) == 2


def test_one_event_by_two_ways_is_handled_once_when_asked() -> None:
    async def go() -> list[Reply]:
        body = signed()[1]
        return [await deliver(app, body, delivery_id=delivery_id) for delivery_id in ("dlv_1", "dlv_2")]

    seen: list[object] = []
    app = handled_by(seen.append, dedupe_by="event_id")
    assert run(go())[1].headers[b"x-axiom-replayed"] == b"true"
    assert len(seen) == 1


def test_the_end_waits_for_a_running_handler_and_records_it() -> None:
    async def go() -> Any:
        async def paid(event: object) -> None:
            running.set()
            await asyncio.sleep(0.05)

        running = asyncio.Event()
        app = handled_by(paid, ledger=ledger)
        async with app.lifespan():
            client = asyncio.create_task(deliver(app))
            await running.wait()
            client.cancel()
        return [row.state for row in ledger._rows.values()]

    ledger = Ledger()
    assert run(go()) == ["done"]


def test_the_end_leaves_the_claim_of_a_thread_that_still_runs() -> None:
    async def go() -> Any:
        async with app.lifespan():
            assert (await deliver(app)).status == 503
        return [row.state for row in ledger._rows.values()]

    proceed, ledger = threading.Event(), Ledger()
    app = handled_by(lambda event: proceed.wait(HANG), ledger=ledger, handler_deadline=0.01)
    try:
        assert run(go()) == ["claimed"]
    finally:
        proceed.set()


def test_a_loop_that_ends_releases_what_it_was_handling() -> None:
    async def go() -> None:
        async def paid(event: object) -> None:
            running.set()
            await asyncio.Event().wait()

        running = asyncio.Event()
        app = handled_by(paid, ledger=ledger)
        client = asyncio.create_task(deliver(app))
        await running.wait()
        del client

    ledger = Ledger()
    run(go())
    assert [row.state for row in ledger._rows.values()] == ["released"]


def test_a_websocket_is_closed() -> None:
    async def go() -> list[Any]:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "websocket.connect"}

        await receiver()({"type": "websocket"}, receive, send)
        return sent

    assert run(go()) == [{"type": "websocket.close", "code": 1000}]
