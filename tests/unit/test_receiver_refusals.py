"""What a receiver refuses, and how."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from hookline_receiver import MemoryLedger, Receiver, SigningKey
from hookline_receiver.body import BufferCap
from tests.support import run
from tests.support_receiver import NOW_MS, Ledger, Order, Reply, call, deliver, handled_by, nothing, receiver, signed

if TYPE_CHECKING:
    from collections.abc import Callable


def test_only_post_is_a_delivery() -> None:  # cases: C15
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
) -> None:  # cases: B11 C11
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
def test_a_body_over_the_limit_is_refused_whatever_length_it_declares(length: bytes) -> None:  # cases: C13
    headers, body = signed(b"a" * 101)
    app = handled_by(nothing, max_body_bytes=100)
    reply = run(call(app, [*headers, (b"content-length", length)], body, chunks=[100, 1]))
    assert (reply.status, reply.headers[b"connection"]) == (413, b"close")


def test_a_body_that_does_not_arrive_in_time_is_given_up() -> None:  # cases: C13
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


def test_a_client_that_leaves_mid_body_gets_no_answer_and_leaves_no_row() -> None:  # cases: C03
    ledger = Ledger()

    async def receive() -> Any:
        return messages.pop(0)

    messages = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    app = handled_by(nothing, ledger=ledger)
    assert run(call(app, *signed(), receive=receive)) == Reply()
    assert (ledger.asked, dict(app.counters)) == ([], {})


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"[" * 100_000, b"\xff", b"\x00", b'{"type":"order.paid"}', b"{}"])
def test_an_authentic_body_that_is_not_the_event_is_unprocessable(body: bytes) -> None:  # cases: B24 B28
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


def stricter(ledger: MemoryLedger) -> Receiver:
    class Strict(Order):
        added_later: int

    made = receiver(ledger=ledger)
    made.on("order.paid", Strict)(nothing)
    return made


@pytest.mark.parametrize(
    ("extra", "later"),
    [
        ([(b"content-encoding", b"gzip")], lambda ledger: handled_by(nothing, ledger=ledger)),
        ([], stricter),
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


def test_what_cannot_be_handled_while_the_ledger_is_down_comes_again() -> None:
    assert run(deliver(handled_by(nothing, ledger=Ledger("find")), b"{}")).status == 503


@pytest.mark.parametrize(("on_unknown", "status"), [("accept", 204), ("reject", 422)])
def test_an_event_without_a_handler_is_named_once(
    on_unknown: Any, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def go() -> None:
        app = receiver(on_unknown=on_unknown)
        for number in range(3):
            await deliver(app, delivery_id=f"dlv_{number}")

    run(go())
    assert caplog.messages == [f"no handler for 'order.paid': answered {status}, which is said once"]
