"""From publish to verify: what is signed travels, under the keys of the moment, and clients do not mix."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel, ConfigDict
from redis.asyncio import Redis

from hookline_receiver import Refused, SigningKey, verify
from hookline_sender import InvalidPayload, Plan, Publisher, Worker
from hookline_shared import decode_event
from tests.support import run
from tests.support_sender import Endpoint, Order, deployment_on, environ_of, impatient, publish, shop

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from tests.support_sender import Request

OLD, NEW = SigningKey(b"o" * 32), SigningKey(b"n" * 32)
BILLING_KEY = "HOOKLINE_WEBHOOK_BILLING_KEY"


class Anything(BaseModel):
    model_config = ConfigDict(extra="allow")


class Watched(Endpoint):
    """An endpoint that tells of each request before it answers 500, and 204 to the last."""

    def __init__(self, tell: Callable[[int], None], attempts: int) -> None:
        super().__init__(*[500] * (attempts - 1), 204)
        self._tell = tell

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        self._tell(len(self.requests) + 1)
        await super()._answer(request, writer)


def verifies(request: Request, *keys: SigningKey) -> bool:
    try:
        verify(request.headers, request.body, keys=keys)
    except Refused:
        return False
    return True


def test_a_queued_retry_is_signed_with_the_keys_of_its_own_moment(redis_url: str, namespace: str) -> None:  # cases: B25
    plan, order_paid = shop("billing")
    deployment = deployment_on(redis_url, namespace)
    keys = {1: f"{NEW.reveal()} {OLD.reveal()}", 2: NEW.reveal()}  # set while that attempt is answered

    async def go() -> list[Request]:
        environ = environ_of(billing="http://127.0.0.1:2/") | {BILLING_KEY: OLD.reveal()}
        await publish(plan, deployment, order_paid, 1)
        async with Watched(lambda number: environ.update({BILLING_KEY: keys.get(number, "")}), 3) as billing:
            environ |= environ_of(billing=billing.url) | {BILLING_KEY: OLD.reveal()}
            async with Worker(plan, deployment, environ=environ).background():
                return (await billing.received(3))[:3]

    attempts = run(go())
    known = [(OLD,), (NEW,), (NEW, OLD)]
    assert [[verifies(request, *keys) for keys in known] for request in attempts] == [
        [True, False, True],
        [True, True, True],
        [False, True, True],
    ]


@pytest.mark.parametrize(
    "payload",
    [
        {"name": "№ 1 – café \U0001f600", "\u2028": "\u2029"},
        {"price": 0.1, "tiny": 5e-324, "huge": 1e308, "one": 1.0, "zero": -0.0},
        {"a": {"b": {"c": [1, {"d": None, "e": True}]}}, "html": "<p>&amp;</p>", "slash": "a/b"},
        {"big": 2**70, "text": "\\u00e9 \r\n \x7f", "empty": {}},
    ],
)
def test_the_bytes_on_the_wire_are_the_ones_that_were_signed(
    redis_url: str, namespace: str, payload: dict[str, Any]
) -> None:  # cases: B27
    plan = Plan("shop")
    event = plan.event("anything.done", Anything)
    plan.webhook("billing", event, policy=impatient())
    deployment = deployment_on(redis_url, namespace)

    async def go() -> Request:
        async with Publisher(plan, deployment) as publisher:
            await publisher.publish(event, Anything.model_validate(payload), id="1")
        async with Endpoint() as billing:
            worker = Worker(plan, deployment, environ=environ_of(billing=billing.url))
            async with worker.background():
                return (await billing.received(1))[0]

    request = run(go())
    assert request.is_signed()
    assert decode_event(event, request.body).data.model_extra == payload


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def publishing(redis_url: str, namespace: str, value: object) -> tuple[bool, int]:
    """Publish it: whether that was refused, and how many keys it made in the store."""
    plan = Plan("shop")
    event = plan.event("anything.done", Anything)
    plan.webhook("billing", event, policy=impatient())

    async def go() -> tuple[bool, int]:
        async with (
            Redis.from_url(redis_url) as redis,
            Publisher(plan, deployment_on(redis_url, namespace)) as publisher,
        ):
            refused, before = False, await redis.keys(f"*{namespace}*")
            try:
                await publisher.publish(event, Anything.model_construct(value=value), id="1")
            except InvalidPayload:
                refused = True
            return refused, len(await redis.keys(f"*{namespace}*")) - len(before)

    return run(go())


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), [{"deep": -float("inf")}], b"\xffmarker", "\ud800marker", object(), nested(2000)],
    ids=["nan", "inf", "deep", "bytes", "surrogate", "object", "nested"],
)
def test_what_is_no_json_is_refused_at_publish_and_nothing_is_stored(
    redis_url: str, namespace: str, value: object
) -> None:  # cases: A71
    assert publishing(redis_url, namespace, value) == (True, 0)


@pytest.mark.parametrize(
    "value", [2**70, Decimal("1.10"), datetime(2026, 1, 1, tzinfo=UTC), b"text", {1, 2}, nested(50)], ids=repr
)
def test_what_has_a_json_form_is_published_with_it(redis_url: str, namespace: str, value: object) -> None:  # cases: A71
    refused, made = publishing(redis_url, namespace, value)
    assert (refused, made > 0) == (False, True)


def test_a_publisher_made_before_any_loop_serves_one_loop_after_another(
    redis_url: str, namespace: str
) -> None:  # cases: A73
    plan, order_paid = shop("billing")
    publisher = Publisher(plan, deployment_on(redis_url, namespace))

    async def go(number: int) -> bool:
        async with publisher:
            publication = await publisher.publish(order_paid, Order(order_id=str(number)), id=f"order-{number}")
        return publication.duplicate

    assert [run(go(number)) for number in (1, 1, 2)] == [False, True, False]


def test_two_senders_in_one_loop_share_nothing_and_end_apart(redis_url: str, namespace: str) -> None:  # cases: A73
    plan, order_paid = shop("billing")
    spaces = [f"{namespace}-{number}" for number in range(2)]

    async def go() -> list[Request]:
        async with Endpoint() as one, Endpoint() as other:
            environs = [environ_of(billing=one.url), environ_of(billing=other.url) | {BILLING_KEY: NEW.reveal()}]
            workers = [
                Worker(plan, deployment_on(redis_url, space), environ=environ)
                for space, environ in zip(spaces, environs, strict=True)
            ]
            async with workers[1].background(), Publisher(plan, deployment_on(redis_url, spaces[1])) as publisher:
                async with workers[0].background():
                    await publish(plan, deployment_on(redis_url, spaces[0]), order_paid, 1)
                    first = (await one.received(1))[0]
                await publisher.publish(order_paid, Order(order_id="2"), id="order-2")
                second = (await other.received(1))[0]
            assert (len(one.requests), len(other.requests)) == (1, 1)
            return [first, second]

    first, second = run(go())
    assert (first.is_signed(), verifies(first, NEW)) == (True, False)
    assert (second.is_signed(), verifies(second, NEW)) == (False, True)
