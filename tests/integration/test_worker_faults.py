"""Faults under a worker at work: each costs time, no delivery and no attempt."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis

from hookline_sender import PlanMismatch, Publisher, WeakDurability, Worker
from hookline_sender.engine import registry
from hookline_sender.engine.layout import lane_of
from hookline_sender.engine.records import State
from hookline_sender.engine.store import RedisStore
from hookline_sender.registered import Registered
from tests.support import run, server
from tests.support_sender import (
    TASK,
    Endpoint,
    Order,
    deployment_on,
    environ_of,
    impatient,
    publish,
    reached,
    records,
    shop,
    widened,
)

if TYPE_CHECKING:
    from hookline_sender.embedded import EmbeddedServer

PLAN, ORDER_PAID = shop("billing")
BRIEF, ORDER_SENT = shop("billing", policy=impatient(timeout=3.0))


@pytest.mark.parametrize("away", [0.0, 6.0])  # seconds; a lease takes 5
def test_an_outcome_that_redis_was_not_there_to_hear_is_said_when_it_is_back(  # cases: A14 A44
    namespace: str, away: float
) -> None:
    async def go(redis: EmbeddedServer) -> None:
        deployment = deployment_on(redis.url, namespace, lease=1.0)
        async with Endpoint() as billing:
            environ = environ_of(billing=billing.url)
            workers = [Worker(BRIEF, deployment, environ=environ) for _ in range(2)]
            async with workers[0].background(), workers[1].background():
                billing.gate.clear()
                await widened(deployment, "billing")
                ids = await publish(BRIEF, deployment, ORDER_SENT, *range(5))
                await billing.received(5)
                redis.kill()
                billing.gate.set()
                await asyncio.sleep(away)  # this long an outage
                await asyncio.to_thread(redis.restart)
                for delivery_id in ids:
                    await reached(deployment, delivery_id, State.COMPLETED)
            assert len(billing.requests) == 5
            async with records(deployment) as tasks:
                assert {(await tasks.of(each)).attempts for each in ids} == {1}

    with server() as redis:
        run(go(redis))


@pytest.mark.parametrize("off", [300.0, -300.0])
def test_a_worker_whose_own_clock_is_wrong_is_neither_early_nor_late(  # cases: A69
    redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch, off: float
) -> None:
    right = time.time
    deployment = deployment_on(redis_url, namespace)

    async def go() -> tuple[float, Endpoint]:
        async with Publisher(PLAN, deployment) as publisher:
            begun = right()
            await publisher.publish(ORDER_PAID, Order(order_id="1"), id="1", delay=1.0)
        monkeypatch.setattr(time, "time", lambda: right() + off)
        async with (
            Endpoint() as billing,
            Worker(PLAN, deployment, environ=environ_of(billing=billing.url)).background(),
        ):
            await billing.received(1)
            return right() - begun, billing

    waited, billing = run(go())
    assert waited > 0.8  # and not 300 s more, which it would not have waited for
    stamp = int(billing.requests[0].headers["x-axiom-timestamp"]) / 1000
    assert abs(stamp - right()) < 20


def test_a_worker_claims_nothing_from_a_server_that_became_weak_until_it_is_sound_again(namespace: str) -> None:
    async def go(redis: EmbeddedServer) -> None:
        deployment = deployment_on(redis.url, namespace)
        async with (
            Redis.from_url(redis.url) as client,
            Endpoint() as billing,
            Publisher(PLAN, deployment) as publisher,
            Worker(PLAN, deployment, environ=environ_of(billing=billing.url)).background(),
        ):
            billing.gate.clear()
            (running, waiting) = await publish(PLAN, deployment, ORDER_PAID, 1), "order-2"
            await billing.received(1)
            await client.config_set("appendfsync", "everysec")
            await client.client_kill_filter(_type="normal", skipme=True)  # or the next check is 30 seconds away
            with pytest.raises(WeakDurability, match="appendfsync=everysec"):
                await publisher.publish(ORDER_PAID, Order(order_id="2"), id=waiting)
            billing.gate.set()
            await reached(deployment_on(redis.url, namespace, durability="asserted"), running[0], State.COMPLETED)
            await client.config_set("appendfsync", "always")
            await publisher.publish(ORDER_PAID, Order(order_id="2"), id=waiting)
            await billing.received(2)

    with server() as redis:
        run(go(redis))


def test_an_emptied_server_is_worked_on_again_once_somebody_binds_the_plan(namespace: str) -> None:
    async def go(redis: EmbeddedServer) -> None:
        deployment = deployment_on(redis.url, namespace)
        async with (
            Redis.from_url(redis.url) as client,
            Endpoint() as billing,
            Worker(PLAN, deployment, environ=environ_of(billing=billing.url)).background(),
        ):
            async with Publisher(PLAN, deployment) as publisher:
                await client.flushall()
                with pytest.raises(PlanMismatch, match="emptied"):
                    await publisher.publish(ORDER_PAID, Order(order_id="1"), id="1")
                assert await client.dbsize() == 0
            await publish(PLAN, deployment, ORDER_PAID, 2)
            await billing.received(1)

    with server() as redis:
        run(go(redis))


def test_a_destination_that_hangs_does_not_hold_up_another(redis_url: str, namespace: str) -> None:  # cases: A20
    plan, order_paid = shop("hangs", "works", policy=impatient(timeout=30.0))
    deployment = deployment_on(redis_url, namespace)

    async def go() -> float:
        async with Endpoint() as hangs, Endpoint() as works:
            hangs.gate.clear()
            environ = environ_of(hangs=hangs.url, works=works.url)
            await publish(plan, deployment, order_paid, *range(500))
            async with Worker(plan, deployment, concurrency=10, environ=environ).background():
                begun = time.monotonic()
                await works.received(10)
                hangs.gate.set()  # or the worker would wait for its attempts
                return time.monotonic() - begun

    assert run(go()) < 25


def test_an_envelope_that_somebody_wrote_over_is_a_dead_letter_and_stops_nothing(
    redis_url: str, namespace: str
) -> None:
    deployment = deployment_on(redis_url, namespace)

    async def go() -> None:
        damaged, whole = await publish(PLAN, deployment, ORDER_PAID, 1, 2)
        async with Redis.from_url(redis_url) as client:
            await client.set(f"hookline:{{{namespace}:0}}:P:{damaged[:22]}", b"\xff" * 40)
        async with (
            Endpoint() as billing,
            Worker(PLAN, deployment, environ=environ_of(billing=billing.url)).background(),
        ):
            await reached(deployment, whole, State.COMPLETED)
            await reached(deployment, damaged, State.FAILED)
        async with records(deployment) as tasks:
            assert (await tasks.of(damaged)).code == "internal_error"

    run(go())


def test_a_registration_that_somebody_wrote_over_takes_no_other_along(redis_url: str, namespace: str) -> None:
    deployment = deployment_on(redis_url, namespace)

    async def go() -> None:
        store = await RedisStore.connect(deployment)
        await store.bind(PLAN)
        revision = registry.NO_DESTINATIONS
        for id_, public in (("a", "[]"), ("b", "{"), ("c", '{"webhook":"billing","events":[]}'), ("d", "")):
            lane = lane_of("billing", id_)
            draft = registry.Draft(id_, "acme", lane, "5", public, b"sealed", revision)
            entry = await store.run(registry.register(store.layout, PLAN.fingerprint, draft))
            revision = str(entry.version)
        async with contextlib.aclosing(Redis.from_url(redis_url)) as redis:
            await redis.hset(store.layout.key("reg:acme"), "pd", b"somebody else's")
        registered = Registered(store, deployment)
        await registered.load([replace(TASK, destination=id_, config=1) for id_ in "abcd"])
        assert set(registered._known) == {"c"}
        await store.aclose()

    run(go())
