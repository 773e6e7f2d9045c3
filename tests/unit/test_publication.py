from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from hookline_sender import InvalidPayload, PayloadTooLarge, Plan, UnboundEvent
from hookline_sender.arguments import Options
from hookline_sender.engine.records import Published
from hookline_sender.publication import MAX_BODY_BYTES, Composer, content_digest
from tests.support_sender import Order, impatient, shop

PLAN, ORDER_PAID = shop("billing", "search")
COMPOSER = Composer(PLAN, "shop")
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def request(order_id: str = "1", **options: Any) -> Any:
    return COMPOSER.request(ORDER_PAID, Order(order_id=order_id), Options(**{"id": "order-1"} | options))


def test_the_id_is_the_source_of_the_wires_event_id() -> None:
    first, again, other = request(), request(), request(id="order-2")
    assert json.loads(first.body)["event_id"] == f"evt_{first.pid}"
    assert first.pid == again.pid != other.pid


def test_a_delay_is_below_the_deadline_of_every_destination() -> None:
    plan, order_paid = shop("billing", policy=impatient(deadline=60.0))
    plan.webhook("search", order_paid, policy=impatient(deadline=3600.0))
    made = Composer(plan, "shop").request(order_paid, Order(order_id="1"), Options("order-1", delay=59.0))
    assert made.delay_ms == 59_000
    with pytest.raises(InvalidPayload, match="deadline"):
        Composer(plan, "shop").request(order_paid, Order(order_id="1"), Options("order-1", delay=60.0))


def test_the_digest_ignores_trace_and_a_time_that_was_filled_in() -> None:
    first, again = request(), request(traceparent=TRACE)
    assert first.digest == again.digest
    assert first.nonce != again.nonce


@pytest.mark.parametrize(
    "options",
    [
        {"order_id": "2"},
        {"delay": 1.0},
        {"aggregate": ("order-1", 1)},
        {"aggregate": ("order-1", 2)},
        {"occurred_at": datetime(2026, 1, 1, tzinfo=UTC)},
        {"occurred_at": "2026-01-01T00:00:01Z"},
    ],
)
def test_the_digest_covers_what_a_repeat_must_share(options: dict[str, Any]) -> None:
    assert request(**options).digest != request().digest
    assert request(**options).digest == request(**options).digest


def test_the_digest_does_not_depend_on_the_envelope_of_the_payload() -> None:
    bare = Plan("shop")
    event = bare.event("order.paid", Order, body="payload")
    bare.webhook("billing", event)
    alone = Composer(bare, "shop").request(event, Order(order_id='","data":'), Options("order-1"))
    assert alone.body == json.dumps({"order_id": '","data":'}, separators=(",", ":")).encode()
    assert request('","data":', aggregate=None).digest == alone.digest


@given(st.lists(st.text(max_size=3), min_size=3, max_size=3), st.lists(st.text(max_size=3), min_size=3, max_size=3))
def test_different_contents_have_different_digests(one: list[str], other: list[str]) -> None:
    def digest(parts: list[str]) -> bytes:
        version, aggregate, occurred_at = parts
        return content_digest(version, b"{}", aggregate=(aggregate, 1), occurred_at=occurred_at)

    assert (digest(one) == digest(other)) is (one == other)


def test_a_trace_is_kept_when_it_is_one_and_begun_otherwise() -> None:
    assert request(traceparent=TRACE).traceparent == TRACE
    begun = {request(traceparent=text).traceparent for text in (None, "", "nonsense", TRACE[:-1])}
    assert len(begun) == 4
    assert all(len(text) == len(TRACE) for text in begun)


@pytest.mark.parametrize("size", [MAX_BODY_BYTES, MAX_BODY_BYTES + 1])
def test_the_limit_includes_the_envelope(size: int) -> None:
    filler = size - len(request("").body)
    if size <= MAX_BODY_BYTES:
        assert len(request("x" * filler).body) == size
    else:
        with pytest.raises(PayloadTooLarge):
            request("x" * filler)


@pytest.mark.parametrize(
    "options",
    [
        {"id": ""},
        {"id": "x" * 257},
        {"id": "\ud800"},
        {"id": 7},
        {"tenant": ""},
        {"tenant": 7},
        {"delay": -1},
        {"delay": float("nan")},
        {"delay": True},
        {"delay": "1"},
        {"delay": 86_400.0},
        {"delay": 10**400},
        {"aggregate": ("", 1)},
        {"aggregate": ("order", True)},
        {"aggregate": "order"},
        {"aggregate": ("order", 1 << 63)},
        {"aggregate": ("order", 10**5000)},
        {"occurred_at": "yesterday"},
        {"occurred_at": "2026-W01-1T00:00:00Z"},
        {"occurred_at": "2026-01-01\ud80000:00:00Z"},
        {"occurred_at": datetime(1900, 1, 1, tzinfo=timezone(timedelta(minutes=19, seconds=32)))},
        {"occurred_at": "2026-01-01T00:00:00"},
        {"occurred_at": datetime(2026, 1, 1)},  # noqa: DTZ001 - the naive time is the case
        {"occurred_at": 1_700_000_000},
    ],
    ids=lambda options: next(iter(options)),
)
def test_a_keyword_out_of_range_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidPayload):
        request(**options)


class Price(BaseModel):
    amount: float


@pytest.mark.parametrize("payload", [Price(amount=float("nan")), Order(order_id="1")])
def test_a_payload_that_is_not_the_events_is_refused_without_being_shown(payload: BaseModel) -> None:
    plan = Plan("shop")
    priced = plan.event("item.priced", Price)
    plan.webhook("billing", priced)
    with pytest.raises(InvalidPayload) as refused:
        Composer(plan, "shop").request(priced, payload, Options("1"))
    assert refused.value.__context__ is None or refused.value.__suppress_context__


def test_an_event_that_only_shares_its_name_with_the_plans_is_refused() -> None:
    other = Plan("shop").event("order.paid", Order, schema_version="2")
    with pytest.raises(UnboundEvent, match="another model"):
        COMPOSER.request(other, Order(order_id="1"), Options("1"))


def test_receipts_follow_the_plan_and_outlive_a_binding() -> None:
    made = request()
    lanes = [target.lane for target in made.targets]
    publication = COMPOSER.publication(made, Published(duplicate=True, lanes=("gone" * 4, *reversed(lanes))))
    assert [receipt.binding for receipt in publication.receipts] == ["billing", "search", ""]
    assert publication.receipts[2].delivery_id == made.pid + "gone" * 4
