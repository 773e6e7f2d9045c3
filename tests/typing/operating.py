"""What the type checkers must accept and refuse of an operator's calls. Never run: test_typing_contract.py reads it.

A line that must be reported ends in a comment `E:` that says why; every other line must pass.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import assert_type

from hookline_sender import Cancellation, DeliveryRecord, ListedDelivery, Operator, Plan, Redrive, State

plan = Plan("shop")


async def operate(delivery_id: str) -> None:
    async with Operator(plan) as operator:
        assert_type(operator, Operator)
        record = await operator.inspect(delivery_id)
        assert_type(record, DeliveryRecord)
        assert_type(record.state, State)
        assert_type(await operator.list(), tuple[ListedDelivery, ...])
        await operator.list("running", 10, binding="billing", since=datetime.now(UTC))
        await operator.list("dead")  # E: no such state
        await operator.list(since="2h")  # E: a datetime
        done = await operator.cancel(delivery_id)
        assert_type(done, Cancellation)
        done.state = State.CANCELLED  # E: frozen
        again = await operator.redrive(delivery_id, "ticket-7", accept_repeat=True)
        assert_type(again, Redrive)
        assert_type(again.at_ms, int | None)
        await operator.redrive(delivery_id, "ticket-7", True)  # E: keyword-only  # noqa: FBT003
        await operator.inspect(record)  # E: takes the id
