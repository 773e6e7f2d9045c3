"""The status of every condition, in memory."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest
from starlette.background import BackgroundTask
from starlette.responses import JSONResponse, RedirectResponse, Response

from hookline_receiver import (
    Delivery,
    DomainEvent,
    DomainEventRef,
    EventType,
    InvalidReceiver,
    LedgerUnavailable,
    MemoryLedger,
    Receiver,
    Reject,
    RetryLater,
    SigningKey,
)
from hookline_receiver.body import BufferCap
from hookline_receiver.ledger.protocol import Claimed
from hookline_shared.errors import InvalidSigningKey
from tests.support import run
from tests.support_receiver import KEY, NOW_MS, Anything, Order, Reply, call, receiver, signed, until

if TYPE_CHECKING:
    from collections.abc import Callable


def handled_by(handler: Callable[..., Any], **options: Any) -> Receiver:
    made = receiver(**options)
    made.on("order.paid", Order)(handler)
    return made


def nothing(event: object) -> None:
    """Handle it."""


async def deliver(app: Receiver, body: bytes | None = None, **options: Any) -> Reply:
    return await call(app, *signed(body, **options))


class Ledger(MemoryLedger):
    """A ledger that can be out of order: each name in `down` is a method that does not answer."""

    def __init__(self, *down: str, **options: Any) -> None:
        super().__init__(allow_volatile=True, **options)
        self.down, self.asked = set(down), list[str]()

    def _ask(self, name: str) -> None:
        self.asked.append(name)
        if name in self.down:
            raise LedgerUnavailable(name)

    async def find(self, entry: Any) -> Any:
        self._ask("find")
        return await super().find(entry)

    async def claim(self, entry: Any, owner: bytes, lease: float) -> Any:
        self._ask("claim")
        return await super().claim(entry, owner, lease)

    async def renew(self, claim: Claimed, lease: float) -> bool:
        self._ask("renew")
        return await super().renew(claim, lease)

    async def complete(self, claim: Claimed, status: int) -> bool:
        self._ask("complete")
        return await super().complete(claim, status)

    async def release(self, claim: Claimed) -> bool:
        self._ask("release")
        return await super().release(claim)


# Handled


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


async def twice(app: Receiver, *, delivery_id: str = "dlv_1", **options: Any) -> tuple[Reply, Reply]:
    request = signed(delivery_id=delivery_id, **options)
    return await call(app, *request), await call(app, *request)


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
        later = {"delivery_id": "dlv_1", "event_id": "evt_1", "attempt": 7}
        body = signed(**later)[1]
        await deliver(app, body, **later)
        clock[0] += 3_600_000
        return await deliver(app, body, **later, now_ms=clock[0])

    clock = [NOW_MS]
    app = handled_by(nothing, clock=lambda: clock[0])
    reply = run(go())
    assert (reply.status, reply.headers[b"x-axiom-replayed"]) == (204, b"true")


def test_of_32_copies_at_once_the_handler_runs_one() -> None:
    ran: list[object] = []

    async def paid(event: object) -> None:
        ran.append(event)
        await asyncio.sleep(0.1)

    async def go() -> list[Reply]:
        request = signed()
        return await asyncio.gather(*(call(app, *request) for _ in range(32)))

    app = handled_by(paid)
    assert {reply.status for reply in run(go())} == {204}
    assert len(ran) == 1


def test_a_copy_of_a_running_delivery_waits_and_is_then_told_to_come_again() -> None:
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


# Refused


def test_only_post_is_a_delivery() -> None:
    app = handled_by(nothing)
    for method in ("GET", "HEAD", "OPTIONS", "PUT"):
        reply = run(call(app, *signed(), method=method))
        assert (reply.status, reply.headers[b"allow"]) == (405, b"POST")


REFUSALS: dict[str, Callable[[dict[bytes, bytes]], list[tuple[bytes, bytes]]]] = {
    "missing_delivery": lambda head: [pair for pair in head.items() if pair[0] != b"x-axiom-delivery"],
    "missing_timestamp": lambda head: [pair for pair in head.items() if pair[0] != b"x-axiom-timestamp"],
    "missing_signature": lambda head: [pair for pair in head.items() if pair[0] != b"x-axiom-signature"],
    "repeated_delivery": lambda head: [*head.items(), (b"X-Axiom-Delivery", b"dlv_1")],
    "repeated_timestamp": lambda head: [*head.items(), (b"x-axiom-timestamp", b"1")],
    "repeated_signature": lambda head: [*head.items(), (b"x-axiom-signature", b"v1=")],
    "malformed_delivery": lambda head: list({**head, b"x-axiom-delivery": b"a.b"}.items()),
    "malformed_timestamp": lambda head: list({**head, b"x-axiom-timestamp": b"soon"}.items()),
    "malformed_signature": lambda head: list({**head, b"x-axiom-signature": b"v1=\xe9"}.items()),
    "no_matching_signature": lambda head: list({**head, b"x-axiom-signature": b"v1=" + b"0" * 64}.items()),
}


@pytest.mark.parametrize("reason", REFUSALS)
def test_each_refusal_is_the_same_401_counted_and_logged_by_its_reason(
    reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    app, (headers, body) = handled_by(nothing), signed()
    reply = run(call(app, REFUSALS[reason](dict(headers)), body))
    assert (reply.status, reply.body) == (401, b"unauthorized\n")
    assert dict(app.counters) == {f"refused:{reason}": 1}
    (record,) = caplog.records
    assert (record.levelname, record.getMessage().partition(" (")[0]) == ("WARNING", f"refused: {reason}")


def test_the_log_of_a_refusal_has_counts_and_sizes_but_no_secret_and_no_payload(
    caplog: pytest.LogCaptureFixture,
) -> None:
    headers, body = signed(b"payload-text", key=[SigningKey.generate(), SigningKey.generate()])
    run(call(handled_by(nothing), headers, body))
    assert caplog.messages == ["refused: no_matching_signature (1 key, 2 signatures, 12 bytes)"]


def test_malformed_headers_are_refused_before_the_body_is_asked_for() -> None:
    async def receive() -> Any:
        pytest.fail("the body was read")

    assert run(call(handled_by(nothing), [], receive=receive)).status == 401


def test_a_stale_delivery_is_told_to_come_again() -> None:
    app = handled_by(nothing)
    reply = run(deliver(app, now_ms=NOW_MS - 300_001))
    assert (reply.status, reply.headers[b"retry-after"]) == (503, b"1")
    assert dict(app.counters) == {"refused:stale": 1}


def test_a_stale_delivery_can_be_refused_like_any_other() -> None:
    reply = run(deliver(handled_by(nothing, stale_status=401), now_ms=NOW_MS + 300_001))
    assert (reply.status, reply.body) == (401, b"unauthorized\n")


def test_stale_and_forged_is_forged() -> None:
    forged = deliver(handled_by(nothing), now_ms=NOW_MS - 300_001, key=SigningKey.generate())
    assert run(forged).status == 401


def test_any_of_the_receivers_keys_will_do() -> None:
    old, new = SigningKey.generate(), SigningKey.generate()
    app = handled_by(nothing, keys=[new, old])
    assert {run(deliver(app, key=key)).status for key in (old, new)} == {204}


def test_a_body_over_the_limit_is_refused_by_its_declared_length_without_reading() -> None:
    async def receive() -> Any:
        pytest.fail("the body was read")

    headers, _ = signed()
    length = (b"content-length", b"000131073")
    reply = run(call(handled_by(nothing), [*headers, length], receive=receive))
    assert (reply.status, reply.headers[b"connection"]) == (413, b"close")


@pytest.mark.parametrize("length", [b"5", b"abc", b"-1", b"", b"9" * 5000])
def test_a_body_over_the_limit_is_refused_whatever_length_it_declares(length: bytes) -> None:
    headers, body = signed(b"a" * 101)
    app = handled_by(nothing, max_body_bytes=100)
    reply = run(call(app, [*headers, (b"content-length", length)], body, chunks=[100, 1]))
    assert (reply.status, reply.headers[b"connection"]) == (413, b"close")


def test_a_body_that_does_not_arrive_in_time_is_given_up() -> None:
    async def receive() -> Any:
        await asyncio.Event().wait()

    app = handled_by(nothing, body_deadline=0.01)
    reply = run(call(app, *signed(), receive=receive))
    assert (reply.status, reply.headers[b"connection"]) == (503, b"close")


def test_bodies_of_all_requests_together_are_bounded_and_the_room_is_given_back() -> None:
    async def go() -> tuple[Reply, Reply]:
        app = handled_by(nothing, buffer_cap=cap)
        return await deliver(app, b" " * 101), await deliver(app, b" " * 100)

    cap = BufferCap(100)
    refused, read = run(go())
    assert (refused.status, refused.headers[b"retry-after"]) == (503, b"1")
    assert read.status == 422
    assert cap.used_bytes == 0


def test_a_client_that_leaves_mid_body_gets_no_answer_and_leaves_no_row() -> None:
    ledger = Ledger()

    async def receive() -> Any:
        return messages.pop(0)

    messages = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    app = handled_by(nothing, ledger=ledger)
    assert run(call(app, *signed(), receive=receive)) == Reply()
    assert (ledger.asked, dict(app.counters)) == ([], {})


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"[" * 100_000, b"\xff", b"\x00", b'{"type":"order.paid"}', b"{}"])
def test_an_authentic_body_that_is_not_the_event_is_unprocessable(body: bytes) -> None:
    assert run(deliver(handled_by(nothing), body)).status == 422


def test_an_encoded_body_is_not_supported() -> None:
    headers, body = signed()
    assert run(call(handled_by(nothing), [*headers, (b"content-encoding", b"gzip")], body)).status == 415
    assert run(call(handled_by(nothing), [*headers, (b"content-encoding", b"Identity")], body)).status == 204


def test_an_event_without_a_handler_is_accepted_without_asking_the_ledger() -> None:
    ledger = Ledger("find", "claim")
    app = receiver(ledger=ledger)
    assert run(deliver(app)).status == 204
    assert (dict(app.counters), ledger.asked) == ({"unhandled": 1}, [])


def test_an_event_without_a_handler_can_be_rejected() -> None:
    assert run(deliver(receiver(on_unknown="reject"))).status == 422


# Handled before, by a version that could


@pytest.mark.parametrize(
    ("extra", "later"),
    [
        ([(b"content-encoding", b"gzip")], lambda ledger: handled_by(nothing, ledger=ledger)),
        ([], lambda ledger: _strict(ledger)),
        ([], lambda ledger: receiver(ledger=ledger, on_unknown="reject")),
    ],
    ids=["415", "422", "unknown"],
)
def test_what_was_handled_is_answered_from_the_ledger_before_it_is_refused(extra: Any, later: Any) -> None:
    async def go() -> tuple[Reply, Reply]:
        headers, body = signed()
        await call(handled_by(nothing, ledger=ledger), headers, body)
        again = await call(later(ledger), [*headers, *extra], body)
        return again, await deliver(later(ledger)) if not extra else again

    ledger = Ledger()
    again, fresh = run(go())
    assert (again.status, again.headers[b"x-axiom-replayed"]) == (204, b"true")
    assert fresh.status in {204, 422}


def _strict(ledger: MemoryLedger) -> Receiver:
    class Strict(Order):
        added_later: int

    made = receiver(ledger=ledger)
    made.on("order.paid", Strict)(nothing)
    return made


def test_what_cannot_be_handled_while_the_ledger_is_down_comes_again() -> None:
    assert run(deliver(handled_by(nothing, ledger=Ledger("find")), b"{}")).status == 503


# What the handler decides


def failing(error: BaseException, times: int = 1) -> Callable[[object], None]:
    left = [error] * times

    def handler(event: object) -> None:
        if left:
            raise left.pop()

    return handler


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError("x"), 500), (Reject(), 422), (RetryLater(2.5), 503), (TimeoutError(), 500)]
)
def test_a_handler_that_fails_releases_and_the_retry_runs_it_again(error: Exception, status: int) -> None:
    first, retry = run(twice(handled_by(failing(error))))
    assert (first.status, retry.status) == (status, 204)
    assert b"x-axiom-replayed" not in retry.headers


def test_retry_later_says_when_in_whole_seconds() -> None:
    assert run(deliver(handled_by(failing(RetryLater(2.5))))).headers[b"retry-after"] == b"3"


def test_a_final_rejection_is_recorded() -> None:
    first, again = run(twice(handled_by(failing(Reject("never", final=True)))))
    assert (first.status, again.status, again.headers[b"x-axiom-replayed"]) == (422, 422, b"true")


@pytest.mark.parametrize("status", [400, 404, 429, 503])
def test_a_handlers_own_failure_is_forwarded_and_released(status: int) -> None:
    responses = [Response("no", status), None]
    first, retry = run(twice(handled_by(lambda event: responses.pop(0))))
    assert (first.status, first.body, retry.status) == (status, b"no", 204)


def test_a_handler_that_redirects_has_failed() -> None:
    responses: list[Any] = [RedirectResponse("/elsewhere"), None]
    first, retry = run(twice(handled_by(lambda event: responses.pop(0))))
    assert (first.status, retry.status) == (500, 204)


def test_a_handler_past_its_deadline_is_cancelled_and_released() -> None:
    async def paid(event: object) -> None:
        if not cancelled:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(1)

    cancelled: list[int] = []
    app = handled_by(paid, handler_deadline=0.02)
    first, retry = run(twice(app))
    assert (first.status, retry.status) == (503, 204)
    assert app.counters["overdue"] == 1


def test_a_thread_past_its_deadline_keeps_the_claim_and_its_outcome_is_recorded() -> None:
    ran: list[object] = []

    def paid(event: object) -> None:
        ran.append(event)
        proceed.wait(10)

    async def go() -> tuple[Reply, Reply, Reply]:
        request = signed()
        late, copy = await call(app, *request), await call(app, *request)
        proceed.set()
        return late, copy, await until(lambda: call(app, *request), lambda reply: reply.status == 204)

    proceed = threading.Event()
    app = handled_by(paid, handler_deadline=0.02, busy_wait=0.02)
    late, copy, final = run(go())
    assert (late.status, copy.status) == (503, 503)
    assert final.headers[b"x-axiom-replayed"] == b"true"
    assert len(ran) == 1


def test_the_claim_is_renewed_while_the_handler_runs() -> None:
    async def go() -> Reply:
        async def paid(event: object) -> None:
            await until(_async(lambda: ledger.asked.count("renew")), lambda renewed: renewed > 5)

        return await deliver(handled_by(paid, ledger=ledger, lease=0.03))

    ledger = Ledger()
    assert run(go()).status == 204
    assert ledger.asked[-1] == "complete"


def _async(plain: Callable[[], Any]) -> Callable[[], Any]:
    async def ask() -> Any:
        return plain()

    return ask


def test_a_client_that_is_cancelled_does_not_cancel_the_handler() -> None:
    async def go() -> Reply:
        async def paid(event: object) -> None:
            running.set()
            await proceed.wait()

        running, proceed = asyncio.Event(), asyncio.Event()
        app, request = handled_by(paid), signed()
        client = asyncio.create_task(call(app, *request))
        await running.wait()
        client.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await client
        proceed.set()
        return await call(app, *request)

    assert run(go()).headers[b"x-axiom-replayed"] == b"true"


# The ledger


@pytest.mark.parametrize("ledger", [Ledger("claim"), Ledger(max_rows=0)], ids=["down", "full"])
def test_without_a_claim_nothing_is_handled(ledger: Ledger) -> None:
    seen: list[object] = []
    reply = run(deliver(handled_by(seen.append, ledger=ledger)))
    assert reply.status == 503
    assert int(reply.headers[b"retry-after"]) >= 1
    assert seen == []


def test_an_effect_that_cannot_be_recorded_is_counted_and_comes_again() -> None:
    app = handled_by(nothing, ledger=Ledger("complete"), lease=0.05)
    assert run(deliver(app)).status == 503
    assert app.counters["effect_unrecorded"] == 1


def test_recording_is_tried_again_while_the_claim_is_believed() -> None:
    async def go() -> Reply:
        delivered = asyncio.create_task(deliver(app))
        await until(_async(lambda: ledger.asked.count("complete")), lambda tries: tries > 1)
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


# Routes


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


def test_a_reference_goes_to_its_own_handler() -> None:
    data, references = list[Any](), list[DomainEventRef]()
    made = handled_by(data.append)
    made.on_ref("order.paid")(references.append)
    assert run(deliver(made, b'{"type":"order.paid","data_ref":"s3://x"}')).status == 204
    assert run(deliver(made)).status == 204
    assert ([ref.data_ref for ref in references], len(data)) == (["s3://x"], 1)


def test_one_event_has_one_handler() -> None:
    with pytest.raises(InvalidReceiver, match="has a handler already"):
        handled_by(nothing).on("order.paid", Order)(nothing)


@pytest.mark.parametrize("handler", [lambda: None, lambda a, b, c: None])
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
        ({"scheme": "morse"}, ValueError),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_built(options: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        receiver(**options)


def test_a_volatile_ledger_is_refused_unless_it_is_asked_for() -> None:
    with pytest.raises(InvalidReceiver, match="allow_volatile=True"):
        MemoryLedger()


# Lifespan


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
    app = handled_by(lambda event: proceed.wait(10), ledger=ledger, handler_deadline=0.01)
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
