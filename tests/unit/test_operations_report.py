"""What an operator is told on a terminal about deliveries that wait for others."""

from __future__ import annotations

import pytest

from hookline_sender.cli.operations_report import as_json, cancelled, details
from hookline_sender.engine.records import DeliveryRecord, State
from hookline_sender.operator import Cancellation

HELD = DeliveryRecord(
    delivery_id="b",
    state=State.WAITING,
    cancel_requested=False,
    attempts=0,
    fence=1,
    code="",
    status=0,
    duration_ms=0,
    releases=0,
    due_ms=0,
    deadline_ms=0,
    created_ms=0,
    revision="0",
    event="order.paid",
    traceparent="",
    binding="billing",
    destination="billing",
    lease_until_ms=None,
    now_ms=0,
    history=(),
    blocked_by="a",
)


def test_a_held_delivery_is_shown_with_the_one_it_waits_for() -> None:
    assert "blocked by:   a" in details(HELD).splitlines()
    assert as_json(HELD)["blocked_by"] == "a"


@pytest.mark.parametrize(("state", "told"), [(State.FAILED, "Nothing waits for it"), (State.COMPLETED, "completed")])
def test_a_cancel_that_came_too_late_says_what_it_changed(state: State, told: str) -> None:
    assert told in cancelled(Cancellation("a", state))
