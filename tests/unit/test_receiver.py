"""A delivery from the request to its handler, once."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from starlette.background import BackgroundTask
from starlette.responses import JSONResponse

from hookline_receiver import (
    Delivery,
    DomainEvent,
    DomainEventRef,
    EventType,
    InvalidReceiver,
    MemoryLedger,
    Receiver,
    SigningKey,
)
from hookline_shared.errors import InvalidSigningKey
from tests.support import HANG, run
from tests.support_receiver import (
    KEY,
    NOW_MS,
    Anything,
    Order,
    Reply,
    call,
    deliver,
    handled_by,
    nothing,
    receiver,
    signed,
    twice,
)


def test_an_async_handler_gets_the_event_and_204_is_answered() -> None:
    seen: list[DomainEvent[Order]] = []

    async def paid(event: DomainEvent[Order]) -> None:
        seen.append(event)

    app = handled_by(paid)
    assert run(deliver(app)).status == 204
    assert [(event.type, event.data) for event in seen] == [("order.paid", Order(id="o_1"))]
    assert dict(app.counters) == {"handled": 1}


def test_a_plain_function_runs_in_another_thread() -> None:
    threads: list[threading.Thread] = []
    assert run(deliver(handled_by(lambda event: threads.append(threading.current_thread())))).status == 204
    assert threads != [threading.current_thread()]


def test_a_second_parameter_gets_the_delivery_with_its_fence() -> None:
    seen: list[Delivery] = []

    async def paid(event: DomainEvent[Order], delivery: Delivery) -> None:
        seen.append(delivery)

    run(deliver(handled_by(paid), delivery_id="dlv_1", attempt=3))
    (delivery,) = seen
    assert (delivery.id, delivery.type, delivery.attempt, delivery.fence) == ("dlv_1", "order.paid", 3, 1)
    assert (delivery.timestamp_ms, delivery.content_type) == (NOW_MS, "application/json")


def test_a_decorated_handler_stays_directly_callable() -> None:
    made = receiver()

    @made.on("order.paid", Order)
    async def paid(event: DomainEvent[Order]) -> None:
        assert event.data.id == "o_9"

    run(paid(DomainEvent(type="order.paid", data=Order(id="o_9"))))


def test_the_handlers_own_success_is_forwarded_and_replayed_by_status() -> None:
    ran: list[str] = []
    app = handled_by(lambda event: JSONResponse({"ok": 1}, 202, background=BackgroundTask(ran.append, "after")))
    first, again = run(twice(app))
    assert (first.status, first.body) == (202, b'{"ok":1}')
    assert (again.status, again.body, again.headers[b"x-axiom-replayed"]) == (202, b"", b"true")
    assert ran == ["after"]


def test_a_replayed_delivery_is_answered_from_the_ledger() -> None:
    seen: list[object] = []
    app = handled_by(seen.append)
    first, again = run(twice(app))
    assert (first.status, again.status) == (204, 204)
    assert b"x-axiom-replayed" not in first.headers
    assert again.headers[b"x-axiom-replayed"] == b"true"
    assert len(seen) == 1
    assert app.counters["replayed"] == 1


def test_a_redrive_of_a_handled_delivery_signed_afresh_is_answered_from_the_ledger() -> None:
    async def go() -> Reply:
        later: Any = {"delivery_id": "dlv_1", "event_id": "evt_1", "attempt": 7}
        body = signed(**later)[1]
        await deliver(app, body, **later)
        clock[0] += 3_600_000
        return await deliver(app, body, **later, now_ms=clock[0])

    clock = [NOW_MS]
    app = handled_by(nothing, clock=lambda: clock[0])
    reply = run(go())
    assert (reply.status, reply.headers[b"x-axiom-replayed"]) == (204, b"true")


def test_of_32_copies_at_once_the_handler_runs_one() -> None:  # cases: E17
    ran: list[object] = []

    async def paid(event: object) -> None:
        ran.append(event)
        await asyncio.sleep(0.1)

    async def go() -> list[Reply]:
        request = signed()
        return await asyncio.gather(*(call(app, *request) for _ in range(32)))

    app = handled_by(paid, busy_wait=HANG)
    assert {reply.status for reply in run(go())} == {204}
    assert len(ran) == 1


def test_a_copy_of_a_running_delivery_waits_and_is_then_told_to_come_again() -> None:  # cases: C18
    async def go() -> Reply:
        async def paid(event: object) -> None:
            running.set()
            await done.wait()

        running, done = asyncio.Event(), asyncio.Event()
        app = handled_by(paid, busy_wait=0.05)
        request = signed()
        first = asyncio.create_task(call(app, *request))
        await running.wait()
        copy = await call(app, *request)
        done.set()
        assert (await first).status == 204
        return copy

    copy = run(go())
    assert copy.status == 503
    assert copy.headers[b"retry-after"] == b"15"


def test_another_body_under_the_same_id_is_a_conflict_without_waiting() -> None:
    async def go() -> Reply:
        async def paid(event: object) -> None:
            running.set()
            await done.wait()

        running, done = asyncio.Event(), asyncio.Event()
        app = handled_by(paid, busy_wait=60)
        first = asyncio.create_task(deliver(app, delivery_id="dlv_1", event_id="evt_1"))
        await running.wait()
        other = await deliver(app, delivery_id="dlv_1", event_id="evt_2")
        done.set()
        await first
        return other

    assert run(go()).status == 409


def test_a_bare_payload_goes_to_the_only_handler() -> None:
    seen: list[Any] = []
    made = receiver()
    made.on(EventType("order.paid", Anything, body="payload"))(seen.append)
    assert run(deliver(made, b'{"type":"card","total":3}')).status == 204
    assert seen[0].data.model_dump() == {"type": "card", "total": 3}


def test_type_from_names_the_event_of_bodies_that_do_not() -> None:
    seen: list[Any] = []
    made = receiver(type_from=lambda delivery: "b" if b"total" in delivery.body else "a")
    for name in ("a", "b"):
        made.on(EventType(name, Anything, body="payload"))(seen.append)
    assert run(deliver(made, b'{"total":3}')).status == 204
    assert [event.type for event in seen] == ["b"]


def test_an_event_without_an_id_is_known_by_its_delivery() -> None:
    body, seen = b'{"type":"order.paid","data":{"id":"o_1"}}', list[Any]()
    app = handled_by(seen.append, dedupe_by="event_id")
    run(deliver(app, body, delivery_id="dlv_1"))
    run(deliver(app, body, delivery_id="dlv_2"))
    assert len(seen) == 2


def test_a_reference_goes_to_its_own_handler() -> None:
    data, references = list[Any](), list[DomainEventRef]()
    made = handled_by(data.append)
    made.on_ref("order.paid")(references.append)
    assert run(deliver(made, b'{"type":"order.paid","data_ref":"s3://x"}')).status == 204
    assert run(deliver(made)).status == 204
    assert ([ref.data_ref for ref in references], len(data)) == (["s3://x"], 1)


@pytest.mark.parametrize("event", [print, dict])
@pytest.mark.parametrize("word", ["on", "on_ref"])
def test_what_is_no_event_has_no_handler(word: str, event: Any) -> None:
    with pytest.raises(InvalidReceiver, match="takes an event, or its name and model"):
        getattr(receiver(), word)(event)


def test_one_event_has_one_handler() -> None:
    with pytest.raises(InvalidReceiver, match="has a handler already"):
        handled_by(nothing).on("order.paid", Order)(nothing)


@pytest.mark.parametrize("handler", [lambda: None, lambda a, b, c: None, lambda a, *, b: None, lambda *a: None])
def test_a_handler_takes_the_event_and_perhaps_the_delivery(handler: Any) -> None:
    with pytest.raises(InvalidReceiver, match=r"def handler\(event, delivery\)"):
        handled_by(handler)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"keys": []}, InvalidSigningKey),
        ({"keys": SigningKey(b"short")}, InvalidSigningKey),
        ({"tolerance": float("nan")}, InvalidReceiver),
        ({"tolerance": -1}, InvalidReceiver),
        ({"handler_deadline": 0}, InvalidReceiver),
        ({"max_body_bytes": 0}, InvalidReceiver),
        ({"lease": float("inf")}, InvalidReceiver),
        ({"stale_status": 200}, InvalidReceiver),
        ({"on_unknown": "ignore"}, InvalidReceiver),
        ({"tolerance": "300"}, InvalidReceiver),
        ({"lease": "15"}, InvalidReceiver),
        ({"handler_deadline": None}, InvalidReceiver),
        ({"dedupe_by": "body"}, InvalidReceiver),
        ({"scheme": "morse"}, ValueError),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_built(options: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        receiver(**options)


def test_a_volatile_ledger_is_refused_unless_it_is_asked_for() -> None:
    with pytest.raises(InvalidReceiver, match="allow_volatile=True"):
        MemoryLedger()


@pytest.mark.parametrize("name", ["", "x" * 256, "a\0b", None])
def test_a_receiver_has_a_name_that_every_store_takes(name: Any) -> None:
    with pytest.raises(InvalidReceiver, match="name"):
        Receiver(name, keys=KEY, ledger=MemoryLedger(allow_volatile=True))


def test_a_receivers_repr_is_its_name() -> None:
    longest = "x" * 255
    assert repr(Receiver(longest, keys=KEY, ledger=MemoryLedger(allow_volatile=True))) == f"Receiver('{longest}')"


def test_an_events_name_needs_its_model() -> None:
    with pytest.raises(InvalidReceiver, match=r'on\("order.paid", Model\)'):
        receiver().on("order.paid")  # type: ignore[call-overload]


@pytest.mark.parametrize("ledger", [None, "redis://localhost", MemoryLedger, 5])
def test_a_ledger_is_neither_a_class_nor_an_address(ledger: Any) -> None:
    with pytest.raises(InvalidReceiver, match="ledger"):
        Receiver("orders", keys=KEY, ledger=ledger)
