from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict
from redis.asyncio import Redis

from hookline_sender import (
    FanoutExceeded,
    HooklineError,
    IdentityConflict,
    InvalidDeployment,
    InvalidPayload,
    NamespaceFull,
    NotGranted,
    PayloadTooLarge,
    Plan,
    PlanMismatch,
    Publisher,
    RedisUnavailable,
    UnboundEvent,
    Worker,
)
from tests.support import http_post, run, serve, server
from tests.support_sender import Endpoint, Order, deployment_on, environ_of, impatient, shop


def test_a_publication_has_one_receipt_per_destination(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing", "search")

    async def go() -> None:
        async with Publisher(plan, deployment_on(redis_url, namespace)) as publisher:
            publication = await publisher.publish(order_paid, Order(order_id="1"), id="order-1")
        assert not publication.duplicate
        assert [receipt.destination for receipt in publication.receipts] == ["billing", "search"]
        assert len({receipt.delivery_id for receipt in publication.receipts}) == 2

    run(go())


def test_a_repeat_gets_the_same_receipts_and_makes_no_tasks(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing", "search")

    async def go() -> None:
        async with Publisher(plan, deployment_on(redis_url, namespace, max_records=2)) as publisher:
            first = await publisher.publish(order_paid, Order(order_id="1"), id="order-1")
            again = await publisher.publish(order_paid, Order(order_id="1"), id="order-1", traceparent="00-" + "1" * 32)
        assert again.duplicate
        assert again.receipts == first.receipts

    run(go())


@pytest.mark.parametrize(
    "change",
    [
        {"delay": 1.0},
        {"aggregate": ("order-1", 8)},
        {"occurred_at": datetime(2026, 1, 1, tzinfo=UTC)},
        {"payload": Order(order_id="2")},
    ],
)
def test_other_content_under_the_same_id_is_a_conflict(redis_url: str, namespace: str, change: dict[str, Any]) -> None:
    plan, order_paid = shop("billing")
    call: dict[str, Any] = {"payload": Order(order_id="1"), "aggregate": ("order-1", 7)}

    async def publish(publisher: Publisher, payload: Order, **options: Any) -> None:
        await publisher.publish(order_paid, payload, id="order-1", **options)

    async def go() -> None:
        async with Publisher(plan, deployment_on(redis_url, namespace)) as publisher:
            await publish(publisher, **call)
            with pytest.raises(IdentityConflict):
                await publish(publisher, **(call | change))

    run(go())


def test_the_same_id_is_another_fact_for_another_tenant(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing")

    async def go() -> None:
        async with Publisher(plan, deployment_on(redis_url, namespace)) as publisher:
            ours = await publisher.publish(order_paid, Order(order_id="1"), id="order-1", tenant="ours")
            theirs = await publisher.publish(order_paid, Order(order_id="2"), id="order-1", tenant="theirs")
        assert not theirs.duplicate
        assert ours.receipts != theirs.receipts

    run(go())


def test_what_cannot_be_published_is_refused_before_anything_is_written(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing", policy=impatient(deadline=60.0))
    unbound = plan.event("order.lost", Order)

    async def go() -> None:
        async with Publisher(plan, deployment_on(redis_url, namespace)) as publisher:
            with pytest.raises(PayloadTooLarge):
                await publisher.publish(order_paid, Order(order_id="x" * 65_500), id="1")
            with pytest.raises(InvalidPayload, match="deadline"):
                await publisher.publish(order_paid, Order(order_id="1"), id="1", delay=60.0)
            with pytest.raises(InvalidPayload, match="id is a text"):
                await publisher.publish(order_paid, Order(order_id="1"), id="")
            with pytest.raises(UnboundEvent, match=r"order\.lost"):
                await publisher.publish(unbound, Order(order_id="1"), id="1")
            published = await publisher.publish(order_paid, Order(order_id="1"), id="1")
        assert not published.duplicate

    run(go())


def test_a_fan_out_of_129_is_refused(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop(*(f"hook-{number}" for number in range(129)))

    async def go() -> None:
        async with Publisher(plan, deployment_on(redis_url, namespace)) as publisher:
            with pytest.raises(FanoutExceeded):
                await publisher.publish(order_paid, Order(order_id="1"), id="1")

    run(go())


def test_publishing_needs_its_grant(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing")

    async def go() -> None:
        async with Publisher(plan, deployment_on(redis_url, namespace, grants={"publish:refund.*"})) as publisher:
            with pytest.raises(NotGranted, match=r'add "publish:order\.paid" to grants'):
                await publisher.publish(order_paid, Order(order_id="1"), id="1")

    run(go())


def test_a_full_namespace_refuses_and_writes_nothing(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing")

    async def go() -> None:
        async with Publisher(plan, deployment_on(redis_url, namespace, max_records=1)) as publisher:
            await publisher.publish(order_paid, Order(order_id="1"), id="1")
            with pytest.raises(NamespaceFull):
                await publisher.publish(order_paid, Order(order_id="2"), id="2")

    run(go())


def test_an_emptied_server_refuses_until_the_plan_is_bound_again(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing")
    deployment = deployment_on(redis_url, namespace)

    async def go() -> None:
        async with Publisher(plan, deployment) as publisher, Redis.from_url(redis_url) as redis:
            await redis.delete(f"hookline:{{{namespace}:0}}:meta")
            with pytest.raises(PlanMismatch):
                await publisher.publish(order_paid, Order(order_id="1"), id="1")
        async with Publisher(plan, deployment) as publisher:
            await publisher.publish(order_paid, Order(order_id="1"), id="1")

    run(go())


def test_concurrent_calls_share_round_trips_and_get_their_own_receipts(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing")

    async def go() -> None:
        async with (
            Publisher(plan, deployment_on(redis_url, namespace)) as publisher,
            Redis.from_url(redis_url) as redis,
        ):
            before = (await redis.info("stats"))["total_reads_processed"]
            calls = (publisher.publish(order_paid, Order(order_id=str(n)), id=f"order-{n}") for n in range(50))
            publications = await asyncio.gather(*calls)
            reads = (await redis.info("stats"))["total_reads_processed"] - before
            repeats = [await publisher.publish(order_paid, Order(order_id=str(n)), id=f"order-{n}") for n in range(50)]
        assert reads < 30
        assert [each.receipts for each in repeats] == [each.receipts for each in publications]

    run(go())


def test_the_same_fact_published_50_times_at_once_is_one_publication(  # cases: A37
    redis_url: str, namespace: str
) -> None:
    plan, order_paid = shop("billing")

    async def go() -> None:
        async with Publisher(plan, deployment_on(redis_url, namespace, max_records=1)) as publisher:
            calls = [publisher.publish(order_paid, Order(order_id="1"), id="order-1") for _ in range(50)]
            publications = await asyncio.gather(*calls)
        assert sum(not publication.duplicate for publication in publications) == 1
        assert len({publication.receipts for publication in publications}) == 1

    run(go())


def test_a_cancelled_caller_takes_nothing_from_the_others(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing")

    async def go() -> None:
        async with Publisher(plan, deployment_on(redis_url, namespace)) as publisher:

            async def publish(number: int) -> str:
                done = await publisher.publish(order_paid, Order(order_id=str(number)), id=f"order-{number}")
                return done.receipts[0].delivery_id

            for pause in range(6):
                calls = [asyncio.create_task(publish(number)) for number in range(60)]
                for _ in range(pause):
                    await asyncio.sleep(0)
                for call in calls[::2]:
                    call.cancel()
                answers = await asyncio.gather(*calls, return_exceptions=True)
                assert answers[1::2] == [await publish(number) for number in range(1, 60, 2)]

    run(go())


def test_publishing_survives_a_restart_of_redis(namespace: str) -> None:  # cases: A19
    plan, order_paid = shop("billing")

    async def go() -> None:
        with server() as redis:
            async with Publisher(plan, deployment_on(redis.url, namespace)) as publisher:
                before = await publisher.publish(order_paid, Order(order_id="1"), id="1")
                redis.kill()
                with pytest.raises(RedisUnavailable):
                    await publisher.publish(order_paid, Order(order_id="2"), id="2")
                redis.restart()
                again = await publisher.publish(order_paid, Order(order_id="1"), id="1")
        assert again.duplicate
        assert again.receipts == before.receipts

    run(go())


def test_the_deployment_is_read_when_the_publisher_opens(monkeypatch: pytest.MonkeyPatch, redis_url: str) -> None:
    plan, order_paid = shop("billing")
    monkeypatch.delenv("REDIS_URL", raising=False)
    publisher = Publisher(plan)

    async def go() -> None:
        with pytest.raises(InvalidDeployment, match="HOOKLINE_REDIS_URL"):
            await publisher.__aenter__()
        monkeypatch.setenv("HOOKLINE_REDIS_URL", redis_url)
        monkeypatch.setenv("HOOKLINE_GRANTS", "publish:order.paid")
        async with publisher:
            await publisher.publish(order_paid, Order(order_id="1"), id="1")

    run(go())


def test_a_publisher_opens_and_closes_with_an_application(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing")
    publisher = Publisher(plan, deployment_on(redis_url, namespace))
    app = FastAPI(lifespan=publisher.lifespan)

    @app.post("/orders/{number}")
    async def pay(number: str) -> str:
        done = await publisher.publish(order_paid, Order(order_id=number), id=number)
        return done.receipts[0].destination

    with serve(app) as base_url:
        assert http_post(f"{base_url}/orders/1").json() == "billing"
    with pytest.raises(HooklineError, match="not open"):
        run(publisher.publish(order_paid, Order(order_id="1"), id="1"))


def test_every_sample_event_arrives_once_with_equal_data(redis_url: str, namespace: str) -> None:
    class Sample(BaseModel):
        model_config = ConfigDict(extra="allow")

    files = sorted((Path(__file__).parents[1] / "data/samples/github").glob("*.json"))
    plan = Plan("samples")
    events = {file.stem: plan.event(file.stem, Sample) for file in files}
    plan.webhook("sink", policy=impatient())

    async def go() -> None:
        async with Endpoint() as sink, Publisher(plan, deployment_on(redis_url, namespace)) as publisher:
            for file in files:
                payload = Sample.model_validate_json(file.read_bytes())
                await publisher.publish(events[file.stem], payload, id=file.stem)
            worker = Worker(plan, deployment_on(redis_url, namespace), environ=environ_of(sink=sink.url))
            while await worker.run_once():
                pass
        bodies = {body["type"]: body["data"] for body in (json.loads(each.body) for each in sink.requests)}
        assert len(sink.requests) == len(files) == 40
        assert bodies == {file.stem: json.loads(file.read_bytes()) for file in files}

    run(go())
