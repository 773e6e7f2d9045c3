"""What a plan accepts, and what its two digests cover."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from hookline_sender import (
    DeliveryPolicy,
    Destinations,
    EventType,
    HooklineError,
    InvalidDeployment,
    InvalidPlan,
    Operator,
    Plan,
    Publisher,
    SyncPublisher,
    UnboundEvent,
    Worker,
)
from hookline_sender.engine.codes import CODES, code_byte, code_text

if TYPE_CHECKING:
    from hookline_sender.policy import Ordering


class OrderPaid(BaseModel):
    order_id: str


class Refunded(BaseModel):
    order_id: str


def plan_with(*events: str, concurrency: int = 50, policy: DeliveryPolicy | None = None) -> Plan:
    plan = Plan("shop")
    types = [plan.event(name, OrderPaid) for name in events]
    plan.webhook("billing", *types, concurrency=concurrency, policy=policy)
    return plan


def test_a_webhook_receives_the_events_it_names() -> None:
    plan = Plan("shop")
    paid, refunded = plan.event("order.paid", OrderPaid), plan.event("order.refunded", Refunded)
    billing = plan.webhook("billing", paid)
    mailing = plan.webhook("mailing", refunded, paid)
    assert plan.bindings_of("order.paid") == (billing, mailing)
    assert plan.bindings_of("order.refunded") == (mailing,)
    assert plan.bindings_of("order.lost") == ()


def test_a_webhook_without_events_receives_all_of_the_plan_later_ones_included() -> None:
    plan = Plan("shop")
    audit = plan.webhook("audit")
    plan.event("order.paid", OrderPaid)
    assert plan.bindings_of("order.paid") == (audit,)


def test_an_event_of_a_shared_module_joins_the_plan_through_a_webhook() -> None:
    plan, shared = Plan("shop"), EventType("order.paid", OrderPaid)
    plan.webhook("billing", shared)
    plan.webhook("mailing", shared)
    assert dict(plan.events) == {"order.paid": shared}


def test_two_events_of_one_name_are_refused() -> None:
    plan = Plan("shop")
    plan.event("order.paid", OrderPaid)
    with pytest.raises(InvalidPlan, match=r"already has an event .order\.paid."):
        plan.event("order.paid", OrderPaid)
    with pytest.raises(InvalidPlan, match="another event"):
        plan.webhook("billing", EventType("order.paid", Refunded))
    assert dict(plan.webhooks) == {}


@pytest.mark.parametrize("name", ["", "Shop", "a b", "-a", "a_b", "a" * 65, "a\n", "é"])
def test_a_name_outside_its_alphabet_is_refused(name: str) -> None:
    with pytest.raises(InvalidPlan, match="cannot name a plan"):
        Plan(name)
    with pytest.raises(InvalidPlan, match="cannot name a webhook"):
        Plan("shop").webhook(name)


def test_a_webhook_is_declared_once_with_a_sane_concurrency_and_a_known_profile() -> None:
    plan = plan_with("order.paid")
    with pytest.raises(InvalidPlan, match="already has a webhook"):
        plan.webhook("billing")
    for concurrency in (0, -1, 1025, True, 2.0):
        with pytest.raises(InvalidPlan, match="concurrency"):
            plan.webhook("mailing", concurrency=concurrency)  # type: ignore[arg-type]
    with pytest.raises(HooklineError, match="profile"):
        plan.webhook("mailing", profile="smoke")


@pytest.mark.parametrize(("ordering", "concurrency"), [("unordered", 7), ("binding", 1), ("aggregate", 7)])
def test_only_a_webhook_in_order_of_its_binding_delivers_one_at_a_time(ordering: Ordering, concurrency: int) -> None:
    plan = plan_with("a", concurrency=7, policy=DeliveryPolicy(ordering=ordering))
    assert plan.webhooks["billing"].concurrency == concurrency


def test_policies_and_models_do_not_change_the_fingerprint() -> None:
    plain = plan_with("order.paid")
    other = plan_with("order.paid", concurrency=3, policy=DeliveryPolicy(attempts=9))
    assert plain.fingerprint == other.fingerprint
    assert plain.revision != other.revision


def test_the_order_of_declaration_does_not_change_the_fingerprint() -> None:
    assert plan_with("a", "b").fingerprint == plan_with("b", "a").fingerprint


def test_events_bindings_and_orderings_change_the_fingerprint() -> None:
    more = plan_with("a")
    more.webhook("mailing")
    ordered = [plan_with("a", policy=DeliveryPolicy(ordering=each)) for each in ("binding", "aggregate")]
    plans = [plan_with("a"), plan_with("b"), plan_with("a", "b"), more, *ordered]
    assert len({plan.fingerprint for plan in plans}) == len(plans)
    assert all(len(bytes.fromhex(plan.fingerprint)) == 8 for plan in plans)


def test_an_event_has_its_place_in_the_plan() -> None:
    plan = plan_with("b", "a")
    assert (plan.event_index("b"), plan.event_index("a")) == (0, 1)
    with pytest.raises(UnboundEvent, match=r"order\.lost"):
        plan.event_index("order.lost")


def test_declarations_cannot_be_changed_from_outside() -> None:
    plan = plan_with("a")
    with pytest.raises(TypeError):
        plan.webhooks["billing"] = plan.webhooks["billing"]  # type: ignore[index]


def test_every_code_has_one_byte_and_comes_back() -> None:
    assert len(set(CODES)) == len(CODES) < 256
    assert all(code_text(code_byte(code)) == code for code in CODES)
    assert (code_text(0), code_text(250)) == ("", "code_250")


def test_codes_keep_the_bytes_they_were_stored_under() -> None:
    assert CODES[:4] == ("", "connect_refused", "dns_failed", "tls_failed")
    assert (code_byte("redirect"), code_byte("worker_lost"), code_byte("indeterminate")) == (13, 17, 21)


@pytest.mark.parametrize("policy", [{"attempts": 5}, "patient", DeliveryPolicy])
def test_a_policy_that_is_none_is_refused(policy: Any) -> None:
    with pytest.raises(InvalidPlan, match=r"policy is a DeliveryPolicy\(…\)"):
        Plan("shop").webhook("billing", policy=policy)


@pytest.mark.parametrize("name", [None, 5, b"shop"])
def test_a_name_that_is_no_text_is_refused(name: Any) -> None:
    for declare in (Plan, Plan("shop").webhook, lambda given: Plan("shop").event(given, OrderPaid)):
        with pytest.raises(HooklineError, match="name"):
            declare(name)


@pytest.mark.parametrize("entrance", [Publisher, SyncPublisher, Worker, Operator, Destinations])
def test_every_entrance_wants_a_plan_and_a_deployment_and_shows_neither(entrance: Any) -> None:
    with pytest.raises(InvalidPlan, match="not of type EventType"):
        entrance(Plan("shop").event("order.paid", OrderPaid))
    with pytest.raises(InvalidDeployment, match="not of type str") as refused:
        entrance(Plan("shop"), "redis://:sesame@redis.example")
    assert "sesame" not in str(refused.value)
