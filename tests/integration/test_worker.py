from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import httpx
import pytest

from hookline_sender import Publisher, Worker
from hookline_sender.engine.records import State
from tests.support import run
from tests.support_receiver import until
from tests.support_sender import (
    Endpoint,
    Order,
    deployment_on,
    environ_of,
    impatient,
    publish,
    reached,
    records,
    shop,
)


def test_a_published_event_arrives_signed_and_its_task_is_completed(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing")
    deployment = deployment_on(redis_url, namespace)

    async def go() -> None:
        (delivery_id,) = await publish(plan, deployment, order_paid, 1)
        async with Endpoint() as billing:
            worker = Worker(plan, deployment, environ=environ_of(billing=billing.url))
            assert [await worker.run_once(), await worker.run_once()] == [1, 0]
        (request,) = billing.requests
        assert request.is_signed()
        assert request.delivery_id == delivery_id
        assert request.headers["x-axiom-attempt"] == "1"
        await reached(deployment, delivery_id, State.COMPLETED)

    run(go())


def test_a_running_worker_is_woken_by_a_publication(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing")
    deployment = deployment_on(redis_url, namespace)

    async def go() -> float:
        async with (
            Endpoint() as billing,
            Worker(plan, deployment, environ=environ_of(billing=billing.url)).background(),
            Publisher(plan, deployment) as publisher,
        ):
            await publisher.publish(order_paid, Order(order_id="0"), id="0")
            await billing.received(1)  # the subscription stands
            waits = list[float]()
            for number in range(1, 6):
                started = time.monotonic()
                await publisher.publish(order_paid, Order(order_id="1"), id=str(number))
                await billing.received(number + 1)
                waits.append(time.monotonic() - started)
        return min(waits)

    assert run(go()) < 0.8  # by polls alone each would take a second from the one before


def test_retries_carry_the_same_bytes_and_a_fresh_signature(  # cases: A34 A35
    redis_url: str, namespace: str
) -> None:
    plan, order_paid = shop("billing")
    deployment = deployment_on(redis_url, namespace)

    async def go() -> None:
        (delivery_id,) = await publish(plan, deployment, order_paid, 1)
        async with (
            Endpoint(500, 500, 200) as billing,
            Worker(plan, deployment, environ=environ_of(billing=billing.url)).background(),
        ):
            requests = await billing.received(3)
            await reached(deployment, delivery_id, State.COMPLETED)
        assert len({(each.delivery_id, each.body, tuple(each.headers)) for each in requests}) == 1
        assert all(each.is_signed() for each in requests)
        assert [each.headers["x-axiom-attempt"] for each in requests] == ["1", "2", "3"]
        times = [int(each.headers["x-axiom-timestamp"]) for each in requests]
        assert times[0] < times[1] < times[2]
        assert abs(times[2] - time.time() * 1000) < 100_000

    run(go())


def test_one_failing_destination_repeats_nothing_at_the_others(redis_url: str, namespace: str) -> None:  # cases: A21
    plan, order_paid = shop("one", "two", "three")
    deployment = deployment_on(redis_url, namespace)

    async def go() -> None:
        ids = await publish(plan, deployment, order_paid, 1)
        async with Endpoint() as one, Endpoint(500, 500, 500, 200) as two, Endpoint() as three:
            environ = environ_of(one=one.url, two=two.url, three=three.url)
            async with Worker(plan, deployment, environ=environ).background():
                for delivery_id in ids:
                    await reached(deployment, delivery_id, State.COMPLETED)
        assert [len(each.requests) for each in (one, two, three)] == [1, 4, 1]

    run(go())


def test_retry_after_moves_the_task_and_frees_its_slot(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing", policy=impatient(max_backoff=600.0))
    deployment = deployment_on(redis_url, namespace)

    async def go() -> None:
        (delivery_id,) = await publish(plan, deployment, order_paid, 1)
        async with Endpoint((503, {"retry-after": "120"})) as billing, records(deployment) as tasks:
            worker = Worker(plan, deployment, environ=environ_of(billing=billing.url), concurrency=1)
            assert await worker.run_once() == 1
            record = await tasks.of(delivery_id)
        assert record.state is State.WAITING
        assert 115_000 < record.due_ms - record.now_ms <= 120_000

    run(go())


@pytest.mark.parametrize(
    ("answer", "code"),
    [((307, {"location": "/hooks/shop/"}), "redirect"), (404, "http_4xx"), (410, "gone")],
)
def test_an_answer_that_no_retry_cures_makes_a_dead_letter(
    redis_url: str, namespace: str, answer: Any, code: str
) -> None:
    plan, order_paid = shop("billing")
    deployment = deployment_on(redis_url, namespace)

    async def go() -> None:
        (delivery_id,) = await publish(plan, deployment, order_paid, 1)
        async with Endpoint(answer) as billing, records(deployment) as tasks:
            worker = Worker(plan, deployment, environ=environ_of(billing=billing.url))
            assert await worker.run_once() == 1
            record = await tasks.of(delivery_id)
        assert (record.state, record.code, len(billing.requests)) == (State.FAILED, code, 1)

    run(go())


def test_the_last_attempt_leaves_its_code_on_the_dead_letter(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing", policy=impatient(attempts=3))
    deployment = deployment_on(redis_url, namespace)

    async def go() -> None:
        (delivery_id,) = await publish(plan, deployment, order_paid, 1)
        async with Endpoint(500, 502, 429) as billing, records(deployment) as tasks:
            async with Worker(plan, deployment, environ=environ_of(billing=billing.url)).background():
                await reached(deployment, delivery_id, State.FAILED)
            record = await tasks.of(delivery_id)
        assert (record.attempts, record.code, record.status) == (3, "http_429", 429)
        assert [(each.status, each.code) for each in record.history] == [
            (500, "http_5xx"),
            (502, "http_5xx"),
            (429, "http_429"),
        ]

    run(go())


def test_a_destination_that_is_configured_later_gets_its_events(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing")
    deployment = deployment_on(redis_url, namespace)

    async def go() -> None:
        (delivery_id,) = await publish(plan, deployment, order_paid, 1)
        environ: dict[str, str] = {}
        async with (
            Endpoint() as billing,
            records(deployment) as tasks,
            Worker(plan, deployment, environ=environ).background(),
        ):
            await until(lambda: tasks.of(delivery_id), lambda record: record.code == "misconfigured")
            environ.update(environ_of(billing=billing.url))
            assert len(await billing.received(1)) == 1

    run(go())


def test_a_destination_that_is_not_allowed_gets_nothing_until_its_url_is_mended(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing", policy=impatient(backoff=60.0, max_backoff=60.0))
    deployment = deployment_on(redis_url, namespace, allow_loopback_http=False)

    async def go() -> None:
        (delivery_id,) = await publish(plan, deployment, order_paid, 1)
        async with Endpoint() as billing, records(deployment) as tasks:
            await Worker(plan, deployment, environ=environ_of(billing=billing.url)).run_once()
            record = await tasks.of(delivery_id)
        assert (record.state, record.code, billing.requests) == (State.WAITING, "unsafe_address", [])

    run(go())


def test_tasks_keep_the_policy_they_were_published_under(redis_url: str, namespace: str) -> None:
    strict, order_paid = shop("billing", policy=impatient(attempts=1))
    lenient, _ = shop("billing", policy=impatient(attempts=16))
    deployment = deployment_on(redis_url, namespace)

    async def go() -> None:
        (delivery_id,) = await publish(strict, deployment, order_paid, 1)
        async with Endpoint(500) as billing, records(deployment) as tasks:
            assert await Worker(lenient, deployment, environ=environ_of(billing=billing.url)).run_once() == 1
            assert (await tasks.of(delivery_id)).state is State.FAILED

    run(go())


class Faulty:
    """A transport with a bug that quotes what it was given."""

    def __init__(self) -> None:
        self.calls = 0

    async def post(self, url: str, headers: object, body: bytes, **_: object) -> Any:
        self.calls += 1
        raise RuntimeError(body)

    async def aclose(self) -> None:
        raise AssertionError("the caller's transport is the caller's to close")


def test_a_bug_in_one_attempt_is_retried_and_logged_without_the_payload(
    redis_url: str, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    plan, order_paid = shop("billing", policy=impatient(backoff=60.0, max_backoff=60.0))
    deployment = deployment_on(redis_url, namespace)

    async def go() -> None:
        (delivery_id,) = await publish(plan, deployment, order_paid, 4242)
        worker = Worker(plan, deployment, transport=Faulty(), environ=environ_of(billing="http://127.0.0.1:2/"))
        async with records(deployment) as tasks:
            assert await worker.run_once() == 1
            record = await tasks.of(delivery_id)
        assert (record.state, record.code) == (State.WAITING, "internal_error")

    run(go())
    assert "RuntimeError" in caplog.text
    assert "4242" not in caplog.text


def test_any_httpx_transport_will_do(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing")
    deployment = deployment_on(redis_url, namespace)
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(204)

    async def go() -> None:
        await publish(plan, deployment, order_paid, 1)
        environ = environ_of(billing="https://billing.example/hooks")
        worker = Worker(plan, deployment, transport=httpx.MockTransport(answer), environ=environ)
        assert await worker.run_once() == 1
        assert seen[0].url == "https://billing.example/hooks"

    run(go())


def test_several_workers_share_the_work_without_repeating_it(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing")
    deployment = deployment_on(redis_url, namespace)

    async def go() -> None:
        async with Endpoint() as billing, contextlib.AsyncExitStack() as workers:
            for _ in range(3):
                worker = Worker(plan, deployment, concurrency=7, environ=environ_of(billing=billing.url))
                await workers.enter_async_context(worker.background())
            ids = await publish(plan, deployment, order_paid, *range(200))
            requests = await billing.received(200)
            for delivery_id in ids:
                await reached(deployment, delivery_id, State.COMPLETED)
        assert sorted(each.delivery_id for each in requests) == sorted(ids)
        assert len(billing.requests) == 200

    run(go())


def test_an_ordered_webhook_gets_events_in_the_order_of_their_publication(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing", policy=impatient(ordering="binding"))
    deployment = deployment_on(redis_url, namespace)

    async def go() -> None:
        async with Endpoint(204, 500, 503, 204) as billing:
            async with Publisher(plan, deployment) as publisher:
                for number in range(6):
                    await publisher.publish(order_paid, Order(order_id=str(number)), id=str(number))
            async with Worker(plan, deployment, environ=environ_of(billing=billing.url)).background():
                requests = await billing.received(8)
        orders = [json.loads(each.body)["data"]["order_id"] for each in requests]
        assert orders == ["0", "1", "1", "1", "2", "3", "4", "5"]

    run(go())
