"""Operators at work beside real workers and real receivers."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from hookline_receiver import Receiver, RedisLedger, Reject, SigningKey
from hookline_sender import (
    Destinations,
    HooklineError,
    HooklineWarning,
    InvalidQuestion,
    NotGranted,
    Operator,
    Publisher,
    State,
    UnknownDelivery,
    UnknownDestination,
    Worker,
)
from tests.support import run
from tests.support_customers import destination, open_shop
from tests.support_engine import untyped_client
from tests.support_sender import KEY, Endpoint, Order, deployment_on, environ_of, publish, reached, shop

if TYPE_CHECKING:
    from hookline_sender import Deployment, Plan

pytestmark = pytest.mark.usefixtures("unhurried")  # its receivers, or they answer 503 and are asked again
GRANTS = {"publish:*", "cancel:webhook:billing", "recover:webhook:billing"}
URL = "http://127.0.0.1:2/hooks"


@dataclass
class Shop:
    """A receiver behind a gateway that loses as many answers as it is told to, and a worker that delivers to it."""

    plan: Plan
    deployment: Deployment
    receiver: Receiver
    lost_answers: int = 0
    rejecting: bool = False
    handled: list[str] = field(default_factory=list[str])
    replayed: list[bool] = field(default_factory=list[bool])

    def __post_init__(self) -> None:
        self.receiver.on("order.paid", Order)(self.handle)

    async def handle(self, event: Any) -> None:
        if self.rejecting:
            raise Reject
        self.handled.append(event.data.order_id)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        lose = self.lost_answers > 0
        self.lost_answers -= lose

        async def through(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.replayed.append((b"x-axiom-replayed", b"true") in message["headers"])
                message = message | ({"status": 410} if lose else {})
            await send(message)

        await self.receiver(scope, receive, through)

    async def deliver(self) -> int:
        environ = environ_of(billing=URL)
        transport: Any = httpx.ASGITransport(self)
        return await Worker(self.plan, self.deployment, environ=environ, transport=transport).run_once()


def opened(redis_url: str, namespace: str) -> Shop:
    plan, _ = shop("billing")
    ledger = RedisLedger(redis_url, namespace=f"r-{secrets.token_hex(6)}")
    receiver = Receiver("shop", keys=SigningKey.parse(f"hex:{KEY.hex()}"), ledger=ledger)
    return Shop(plan, deployment_on(redis_url, namespace, grants=GRANTS), receiver)


async def published(place: Shop, number: int = 1) -> str:
    (delivery_id,) = await publish(place.plan, place.deployment, place.plan.events["order.paid"], number)  # type: ignore[arg-type]
    return delivery_id


def test_a_redriven_delivery_that_was_handled_before_is_answered_from_the_ledger(
    redis_url: str, namespace: str
) -> None:
    place = opened(redis_url, namespace)

    async def go() -> None:
        async with place.receiver.lifespan(None), Operator(place.plan, place.deployment) as operator:
            place.lost_answers = 1
            delivery_id = await published(place)
            await place.deliver()
            (dead,) = await operator.list()
            assert (dead.delivery_id, dead.code, dead.status) == (delivery_id, "gone", 410)
            assert (await operator.redrive(delivery_id)).redriven
            await operator.resume("billing")
            await place.deliver()
            assert (await operator.inspect(delivery_id)).state is State.COMPLETED
        assert (place.handled, place.replayed) == (["1"], [False, True])

    run(go())


def test_a_redriven_delivery_that_was_rejected_runs_again(redis_url: str, namespace: str) -> None:
    place = opened(redis_url, namespace)

    async def go() -> None:
        async with place.receiver.lifespan(None), Operator(place.plan, place.deployment) as operator:
            place.rejecting = True
            delivery_id = await published(place)
            await place.deliver()
            assert (await operator.inspect(delivery_id)).state is State.FAILED
            place.rejecting = False
            await operator.redrive(delivery_id, "ticket-7")
            await place.deliver()
            record = await operator.inspect(delivery_id)
            assert (record.state, [line.request_id for line in record.recoveries]) == (State.COMPLETED, ["ticket-7"])
        assert (place.handled, place.replayed) == (["1"], [False, False])

    run(go())


def test_one_request_redrives_once_and_two_clients_at_once_make_one_attempt(redis_url: str, namespace: str) -> None:
    place = opened(redis_url, namespace)

    async def go() -> None:
        place.rejecting = True
        async with (
            place.receiver.lifespan(None),
            Operator(place.plan, place.deployment) as one,
            Operator(place.plan, place.deployment) as two,
        ):
            delivery_id = await published(place)
            await place.deliver()
            answers = await asyncio.gather(*(each.redrive(delivery_id) for each in (one, two)))
            assert sorted(answer.redriven for answer in answers) == [False, True]
            first = next(answer for answer in answers if answer.redriven)
            assert await place.deliver() == 1
            assert await one.redrive(delivery_id, first.request_id) == first
            assert await place.deliver() == 0

    run(go())


def test_redriving_while_an_attempt_is_waiting_or_in_flight_or_done_starts_no_other(  # cases: A42
    redis_url: str, namespace: str
) -> None:
    plan, order_paid = shop("billing")
    deployment = deployment_on(redis_url, namespace, grants=GRANTS)

    async def go() -> None:
        (delivery_id,) = await publish(plan, deployment, order_paid, 1)
        async with Endpoint() as billing, Operator(plan, deployment) as operator:
            billing.gate.clear()
            assert (await operator.redrive(delivery_id)).state is State.ACCEPTED
            async with Worker(plan, deployment, environ=environ_of(billing=billing.url)).background():
                await billing.received(1)
                assert (await operator.redrive(delivery_id)).state is State.RUNNING
                billing.gate.set()
                await reached(deployment, delivery_id, State.COMPLETED)
                assert (await operator.redrive(delivery_id)).state is State.COMPLETED
        assert len(billing.requests) == 1

    run(go())


@pytest.mark.parametrize(("status", "state"), [(204, State.COMPLETED), (503, State.CANCELLED)])
def test_cancelling_an_attempt_in_flight_lets_it_end_and_starts_no_other(
    redis_url: str, namespace: str, status: int, state: State
) -> None:
    plan, order_paid = shop("billing")
    deployment = deployment_on(redis_url, namespace, grants=GRANTS)

    async def go() -> None:
        (delivery_id,) = await publish(plan, deployment, order_paid, 1)
        async with Endpoint(status) as billing, Operator(plan, deployment) as operator:
            billing.gate.clear()
            async with Worker(plan, deployment, environ=environ_of(billing=billing.url)).background():
                await billing.received(1)
                assert (await operator.cancel(delivery_id)).requested
                billing.gate.set()
                await reached(deployment, delivery_id, state)
        assert len(billing.requests) == 1
        assert not (await _cancelled(plan, deployment, delivery_id)).requested

    run(go())


async def _cancelled(plan: Plan, deployment: Deployment, delivery_id: str) -> Any:
    async with Operator(plan, deployment) as operator:
        return await operator.cancel(delivery_id)


def test_deciding_needs_the_grant_of_the_webhook_and_looking_needs_none(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing")
    deployment = deployment_on(redis_url, namespace, grants={"publish:*", "cancel:webhook:audit"})

    async def go() -> None:
        (delivery_id,) = await publish(plan, deployment, order_paid, 1)
        async with Operator(plan, deployment) as operator:
            with pytest.raises(NotGranted, match='add "cancel:webhook:billing" to grants'):
                await operator.cancel(delivery_id)
            with pytest.raises(NotGranted, match='add "recover:webhook:billing" to grants'):
                await operator.redrive(delivery_id)
            with pytest.raises(NotGranted, match='add "recover:webhook:billing" to grants'):
                await operator.resume("billing")
            assert (await operator.inspect(delivery_id)).binding == "billing"
            (listed,) = await operator.list("accepted", binding="billing")
            assert (listed.delivery_id, listed.event_key) == (delivery_id, "order-1")

    run(go())


def test_what_is_due_is_told_from_what_waits_for_its_time(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing")
    deployment = deployment_on(redis_url, namespace)

    async def go() -> dict[str, list[str]]:
        async with Publisher(plan, deployment) as publisher, Operator(plan, deployment) as operator:
            await publisher.publish(order_paid, Order(order_id="1"), id="due")
            await publisher.publish(order_paid, Order(order_id="2"), id="later", delay=600)
            return {
                state: [each.event_key for each in await operator.list(state, binding="billing")]
                for state in ("accepted", "waiting")
            }

    assert run(go()) == {"accepted": ["due"], "waiting": ["later"]}


def test_a_dead_letter_older_than_receivers_remember_warns_when_it_is_redriven(redis_url: str, namespace: str) -> None:
    place = opened(redis_url, namespace)
    place.deployment = deployment_on(
        redis_url, namespace, grants=GRANTS, ledger_horizon=86_400.0, dead_retention=30 * 86_400.0
    )

    async def go() -> None:
        place.rejecting = True
        async with place.receiver.lifespan(None), Operator(place.plan, place.deployment) as operator:
            delivery_id = await published(place)
            await place.deliver()
            client = untyped_client(redis_url)
            client.hset(f"hookline:{{{namespace}:0}}:meta", "debug_offset_ms", 2 * 86_400_000)
            client.close()
            with pytest.warns(HooklineWarning, match="ledger_horizon"):
                assert (await operator.redrive(delivery_id)).redriven

    run(go())


def test_lists_are_filtered_by_time_and_ended_deliveries_keep_their_names(redis_url: str, namespace: str) -> None:
    place = opened(redis_url, namespace)

    async def go() -> None:
        async with place.receiver.lifespan(None), Operator(place.plan, place.deployment) as operator:
            delivery_id = await published(place)
            await place.deliver()
            now = datetime.now(UTC)
            (done,) = await operator.list("completed", since=now - timedelta(hours=1), until=now + timedelta(hours=1))
            assert (done.delivery_id, done.binding, done.destination) == (delivery_id, "billing", "billing")
            assert await operator.list("completed", until=now - timedelta(hours=1)) == ()
            assert (await operator.inspect(delivery_id)).destination == "billing"

    run(go())


@pytest.mark.parametrize("make", [Operator, Destinations, Publisher])
def test_what_is_open_is_not_opened_again_and_goes_on(redis_url: str, namespace: str, make: Any) -> None:
    async def go() -> None:
        plan, _ = shop("billing")
        made = make(plan, deployment_on(redis_url, namespace))
        async with made:
            with pytest.raises(HooklineError, match="already open"):
                await made.__aenter__()
        async with made:
            pass

    run(go())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"state": "dead"}, "state='dead'"),
        ({"limit": 0}, "limit=0"),
        ({"limit": 1001}, "limit=1001"),
        ({"code": "nonsense"}, "code='nonsense'"),
        ({"state": "waiting"}, "name its binding"),
        ({"state": "completed", "tenant": "acme"}, "leave out tenant="),
        ({"since": datetime(2026, 1, 1)}, "since is a datetime with a time zone"),  # noqa: DTZ001 - what is refused
    ],
)
def test_a_question_without_an_answer_is_refused_with_what_to_change(
    redis_url: str, namespace: str, arguments: dict[str, Any], said: str
) -> None:
    plan, _ = shop("billing")

    async def go() -> None:
        async with Operator(plan, deployment_on(redis_url, namespace)) as operator:
            with pytest.raises(InvalidQuestion, match=said):
                await operator.list(**arguments)
            with pytest.raises(InvalidQuestion, match="request_id"):
                await operator.redrive("x" * 38, "not a request")
            for unknown in ("x" * 38, "nonsense"):
                with pytest.raises(UnknownDelivery):
                    await operator.inspect(unknown)

    run(go())


def test_an_operator_that_is_not_open_says_how_to_open_it() -> None:
    plan, _ = shop("billing")
    with pytest.raises(HooklineError, match="async with"):
        run(Operator(plan).inspect("x" * 38))


def test_a_destination_that_does_not_exist_neither_stands_nor_is_resumed(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop:
            await shop.destinations.register(destination("acme"))
            deployment = replace(shop.deployment, grants=frozenset({"*"}))
            async with Operator(shop.market.plan, deployment) as operator:
                for act in (operator.health, operator.resume):
                    await act("customers", "acme")
                    with pytest.raises(UnknownDestination):
                        await act("customers", "acmme")
                    for wrong in ("customers", "custmers"):
                        with pytest.raises(InvalidQuestion, match=wrong):
                            await act(wrong)

    run(go())
