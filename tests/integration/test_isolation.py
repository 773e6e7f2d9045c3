"""Real workers and real endpoints that hang, refuse, are gone or ask for time; and everybody else's deliveries."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from hookline_sender import Breaker, Operator, Plan, Publisher, State, Worker
from tests.support import run
from tests.support_customers import destination, open_shop
from tests.support_sender import Endpoint, Order, deployment_on, environ_of, impatient, publish, reached, shop

HANGING, HEALTHY, SLOTS = 20, 20, 100


def test_twenty_hanging_destinations_hold_no_healthy_ones_delivery_up(  # cases: A20
    redis_url: str, namespace: str
) -> None:
    """Nothing that hangs gets an answer before every healthy delivery has."""

    async def go() -> None:
        plan, deployment = Plan("shop"), deployment_on(redis_url, namespace)
        order_paid = plan.event("order.paid", Order)
        names = [f"hangs{n}" for n in range(HANGING)], [f"well{n}" for n in range(HEALTHY)]
        for name in (*names[0], *names[1]):
            plan.webhook(name, order_paid, concurrency=10, policy=impatient(timeout=30.0))
        async with AsyncExitStack() as stack:
            hanging, healthy = [await stack.enter_async_context(Endpoint()) for _ in range(2)]
            hanging.gate.clear()
            urls = dict.fromkeys(names[0], hanging.url) | dict.fromkeys(names[1], healthy.url)
            await stack.enter_async_context(
                Worker(plan, deployment, concurrency=SLOTS, environ=environ_of(**urls)).background()
            )
            publisher = await stack.enter_async_context(Publisher(plan, deployment))
            for number in range(12):
                await publisher.publish(order_paid, Order(order_id=str(number)), id=str(number))
            await healthy.received(12 * HEALTHY)
            assert len(hanging.requests) == HANGING
            hanging.gate.set()

    run(go())


def test_a_destination_that_answers_gone_gets_no_second_request_until_it_is_resumed(  # cases: A27
    redis_url: str, namespace: str
) -> None:
    async def go() -> None:
        plan, order_paid = shop("billing")
        deployment = deployment_on(redis_url, namespace, grants={"publish:*", "recover:webhook:billing"})
        async with Endpoint(410, 204) as billing, Operator(plan, deployment) as operator:
            ids = await publish(plan, deployment, order_paid, *range(6))
            async with Worker(plan, deployment, environ=environ_of(billing=billing.url)).background():
                await reached(deployment, ids[0], State.FAILED)
                standing = await operator.health("billing")
                assert (standing.disabled, standing.open, standing.dead) == ("gone", 5, 1)
                assert [each.state for each in await operator.list("waiting", binding="billing")] == [State.WAITING] * 5
                assert len(billing.requests) == 1
                await operator.resume("billing")
                for delivery_id in ids[1:]:
                    await reached(deployment, delivery_id, State.COMPLETED)
            assert (await operator.health("billing")).disabled is None

    run(go())


def test_a_tenant_sees_that_its_destination_fails_and_what_waits(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        breaker = Breaker(failures=2, wait=600.0, longest_wait=3600.0)
        async with open_shop(redis_url, namespace, breaker=breaker) as opened, Endpoint(500) as endpoint:
            await opened.destinations.register(destination(url=endpoint.url, rate=50.0, max_backlog=3))
            assert (await opened.destinations.health("acme")).failing_since_ms is None
            for number in range(4):
                await opened.sell(number)
            await opened.worker().run_once()
            standing = await opened.destinations.health("acme")
            assert (standing.open, standing.breaker, standing.slow) == (3, "open", False)
            assert standing.failures == 3
            assert standing.held_until_ms is not None
            assert 500_000 < standing.held_until_ms - standing.now_ms <= 600_000
            assert (await opened.destinations.get("acme")).max_backlog == 3

    run(go())


def test_a_destination_that_is_gone_is_shown_as_disabled_and_resumed_by_its_id(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as opened, Endpoint(410, 204) as endpoint:
            await opened.destinations.register(destination(url=endpoint.url))
            await opened.sell(1)
            await opened.worker().run_once()
            told = await opened.destinations.get("acme")
            assert (told.paused, told.disabled) == (True, "gone")
            assert await opened.sell(2) == ["acme"]
            assert await opened.worker().run_once() == 0
            await opened.destinations.resume("acme")
            assert await opened.worker().run_once() == 1
            assert (await opened.destinations.get("acme")).disabled is None

    run(go())


@pytest.mark.parametrize("status", [429, 503])
def test_what_a_destination_asks_for_holds_its_other_deliveries_and_no_others(  # cases: A32
    redis_url: str, namespace: str, status: int
) -> None:
    async def go() -> None:
        plan, order_paid = shop("billing", "audit")
        deployment = deployment_on(redis_url, namespace)
        async with Endpoint((status, {"retry-after": "3600"})) as billing, Endpoint() as audit:
            await publish(plan, deployment, order_paid, *range(10))
            environ = environ_of(billing=billing.url, audit=audit.url)
            async with Worker(plan, deployment, concurrency=2, environ=environ).background():
                await audit.received(10)
            assert len(billing.requests) == 1
            async with Operator(plan, deployment) as operator:
                standing = await operator.health("billing")
                assert standing.held_until_ms is not None
                assert standing.held_until_ms - standing.now_ms <= 300_000

    run(go())
