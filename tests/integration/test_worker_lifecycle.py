from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from redis.asyncio import Redis

from hookline_sender import InvalidPlan, PlanMismatch, RedisUnavailable, WeakDurability, Worker
from hookline_sender.engine.records import State
from tests.support import HANG, run, server
from tests.support_receiver import asking, until
from tests.support_sender import (
    Endpoint,
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
    from collections.abc import Callable

    from hookline_sender.egress.transport import WireResponse
    from hookline_sender.embedded import EmbeddedServer


def test_redis_may_be_killed_under_a_worker_with_attempts_in_flight(namespace: str) -> None:  # cases: A14 A44
    plan, order_paid = shop("billing")

    async def go(redis: EmbeddedServer) -> None:
        deployment = deployment_on(redis.url, namespace)
        async with (
            Endpoint() as billing,
            Worker(plan, deployment, environ=environ_of(billing=billing.url)).background(),
        ):
            billing.gate.clear()
            await widened(deployment, "billing")
            ids = await publish(plan, deployment, order_paid, *range(5))
            await billing.received(5)
            redis.kill()
            billing.gate.set()
            await asyncio.to_thread(redis.restart)
            for delivery_id in ids:
                await reached(deployment, delivery_id, State.COMPLETED)
            await publish(plan, deployment, order_paid, 5)
            assert len(await billing.received(6)) == 6

    with server() as redis:
        run(go(redis))


def test_a_worker_waits_for_a_redis_that_is_not_there_yet(namespace: str, caplog: pytest.LogCaptureFixture) -> None:
    plan, order_paid = shop("billing")

    async def go(redis: EmbeddedServer) -> None:
        deployment = deployment_on(redis.url, namespace)
        await publish(plan, deployment, order_paid, 1)
        redis.kill()
        async with (
            Endpoint() as billing,
            Worker(plan, deployment, environ=environ_of(billing=billing.url)).background(),
        ):
            redis.restart()
            assert len(await billing.received(1)) == 1

    with server() as redis:
        run(go(redis))
    assert caplog.text.count("waiting for Redis") == 1


def test_what_ends_a_worker_that_waited_for_redis_is_raised_when_its_block_ends(namespace: str) -> None:
    plan, order_paid = shop("billing")
    other, _ = shop("search")

    async def go(redis: EmbeddedServer) -> None:
        deployment = deployment_on(redis.url, namespace)
        await publish(plan, deployment, order_paid, 1)
        redis.kill()
        async with Worker(other, deployment, environ={}).background():
            redis.restart()
            (running,) = (task for task in asyncio.all_tasks() if task.get_name() == "hookline-worker")
            await asyncio.wait({running}, timeout=HANG)

    with server() as redis, pytest.raises(PlanMismatch, match="billing"):
        run(go(redis))


def test_the_connections_of_a_run_end_with_it(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing")
    deployment = deployment_on(redis_url, namespace)

    async def go() -> None:
        await publish(plan, deployment, order_paid, 1)
        async with Endpoint() as billing:
            assert await Worker(plan, deployment, environ=environ_of(billing=billing.url)).run_once() == 1
            await until(asking(lambda: billing.open), lambda count: count == 0)

    run(go())


def test_a_stopping_worker_finishes_what_it_began_and_claims_nothing_more(  # cases: A13
    redis_url: str, namespace: str
) -> None:
    plan, order_paid = shop("billing")
    deployment = deployment_on(redis_url, namespace)

    async def go() -> None:
        await widened(deployment, "billing")
        ids = await publish(plan, deployment, order_paid, *range(6))
        async with Endpoint() as billing, records(deployment) as tasks:
            billing.gate.clear()
            worker = Worker(plan, deployment, concurrency=2, environ=environ_of(billing=billing.url))
            running = asyncio.create_task(worker.run())
            await billing.received(2)
            running.cancel()
            await asyncio.sleep(0)
            billing.gate.set()
            with pytest.raises(asyncio.CancelledError):
                await running
            states = sorted([(await tasks.of(delivery_id)).state for delivery_id in ids])
        assert states == [State.ACCEPTED] * 4 + [State.COMPLETED] * 2
        assert len(billing.requests) == 2

    run(go())


class Endless:
    """A transport that overruns its deadline once the request is on its way."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def post(
        self,
        url: str,
        headers: object,
        body: bytes,
        *,
        deadline: float,
        destination: str,
        on_sent: Callable[[], None] | None = None,
    ) -> WireResponse:
        if on_sent is not None:
            on_sent()
        self.begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def aclose(self) -> None: ...


def test_an_attempt_longer_than_the_grace_is_interrupted_and_retried(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing", policy=impatient(timeout=0.4, backoff=60.0, max_backoff=60.0))
    deployment = deployment_on(redis_url, namespace)

    async def go() -> None:
        (delivery_id,) = await publish(plan, deployment, order_paid, 1)
        transport = Endless()
        worker = Worker(plan, deployment, transport=transport, environ=environ_of(billing="http://127.0.0.1:2/"))
        async with records(deployment) as tasks:
            async with worker.background():
                await transport.begun.wait()
            record = await tasks.of(delivery_id)
        assert (record.state, record.code, record.attempts) == (State.WAITING, "interrupted", 1)

    run(go())


def test_a_second_cancellation_stops_at_once_and_leaves_the_lease_to_lapse(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing", policy=impatient(timeout=30.0))
    deployment = deployment_on(redis_url, namespace)

    async def go() -> None:
        (delivery_id,) = await publish(plan, deployment, order_paid, 1)
        async with Endpoint() as billing, records(deployment) as tasks:
            billing.gate.clear()
            running = asyncio.create_task(Worker(plan, deployment, environ=environ_of(billing=billing.url)).run())
            await billing.received(1)
            for _ in range(2):
                running.cancel()
                await asyncio.wait({running}, timeout=0.05)
            async with asyncio.timeout(20):  # the attempt may take 30
                await asyncio.wait({running})
            assert running.cancelled()
            assert (await tasks.of(delivery_id)).state is State.RUNNING

    run(go())


def is_ours(task: asyncio.Task[Any]) -> bool:
    """Whether a task runs the sender's code, and not a test's endpoint."""
    running: Any = task.get_coro()
    return "hookline_sender" in running.cr_code.co_filename


def test_nothing_works_on_when_leaving_a_background_block_was_cancelled(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing", policy=impatient(timeout=30.0))
    deployment = deployment_on(redis_url, namespace)

    async def go() -> None:
        await publish(plan, deployment, order_paid, 1)
        async with Endpoint() as billing:
            billing.gate.clear()

            async def serve() -> None:
                async with Worker(plan, deployment, environ=environ_of(billing=billing.url)).background():
                    await billing.received(1)

            before = asyncio.all_tasks()
            serving = asyncio.create_task(serve())
            await billing.received(1)
            await asyncio.wait({serving}, timeout=0.1)
            serving.cancel()
            await asyncio.wait({serving}, timeout=10)
            assert serving.cancelled()
            assert not [task for task in asyncio.all_tasks() - before if is_ours(task)]

    run(go())


def test_a_start_that_is_cancelled_leaves_nothing_behind(namespace: str) -> None:
    plan, _ = shop("billing")
    worker = Worker(plan, deployment_on("redis://127.0.0.1:1", namespace), environ={})

    async def go() -> None:
        async def serve() -> None:
            async with worker.background():
                raise AssertionError

        before, serving = asyncio.all_tasks(), asyncio.create_task(serve())
        await asyncio.sleep(0)
        serving.cancel()
        await asyncio.wait({serving})
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before

    run(go())


async def commands_sent(client: Redis, seconds: float) -> list[str]:
    """What clients send to the server in that time; what scripts call inside is not sent."""
    sent = []
    async with client.monitor() as monitor:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    command = await monitor.next_command()
                    if command["client_type"] != "lua":
                        sent.append(command["command"].split(" ")[0])
    return sent


def test_an_idle_worker_sends_at_most_8_commands_in_3_seconds_and_writes_nothing(namespace: str) -> None:
    plan, order_paid = shop("billing")

    async def written(client: Redis) -> int:
        size: int = (await client.info("persistence"))["aof_current_size"]
        return size

    async def go(redis: EmbeddedServer) -> None:
        deployment = deployment_on(redis.url, namespace)
        (delivery_id,) = await publish(plan, deployment, order_paid, 1)
        async with (
            Endpoint() as billing,
            Redis.from_url(redis.url) as client,
            Worker(plan, deployment, environ=environ_of(billing=billing.url)).background(),
        ):
            await reached(deployment, delivery_id, State.COMPLETED)
            before = await written(client)
            sent = await commands_sent(client, 3)
            after = await written(client)
        assert 1 <= len(sent) <= 8, sent
        assert after == before

    with server() as redis:
        run(go(redis))


def test_a_server_that_may_lose_events_is_not_worked_on(namespace: str) -> None:
    plan, _ = shop("billing")

    async def go(redis: EmbeddedServer) -> None:
        worker = Worker(plan, deployment_on(redis.url, namespace))
        with pytest.raises(WeakDurability):
            await worker.run_once()
        with pytest.raises(WeakDurability):
            await worker.run()
        with pytest.raises(WeakDurability):
            async with worker.background():
                pytest.fail("the block must not begin")

    with server(extra={"appendfsync": "everysec"}) as redis:
        run(go(redis))


def test_what_makes_a_start_impossible_is_raised(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing")
    other, _ = shop("search")
    deployment = deployment_on(redis_url, namespace)
    Worker(plan, deployment, concurrency=4096)
    for wrong in (0, 4097):
        with pytest.raises(InvalidPlan, match="concurrency"):
            Worker(plan, deployment, concurrency=wrong)

    async def go() -> None:
        await publish(plan, deployment, order_paid, 1)
        with pytest.raises(PlanMismatch, match="billing"):
            await Worker(other, deployment).run()
        with pytest.raises(RedisUnavailable):
            await Worker(plan, deployment_on("unix:///nowhere.sock", namespace)).run_once()

    run(go())
