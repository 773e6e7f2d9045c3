"""Servers that refuse, for a while or for good: named errors, no attempt spent, and everything goes on afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from hookline_sender import Publisher, RedisUnavailable, WeakDurability, Worker
from hookline_sender.engine.records import State
from tests.support import HANG, closed_port, run, server
from tests.support_engine import untyped_client
from tests.support_failover import failed_over, replica_of, start_master
from tests.support_proxy import Proxy
from tests.support_receiver import leg_server, until
from tests.support_sender import Endpoint, Order, deployment_on, environ_of, publish, reached, records, shop, widened

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hookline_sender import Deployment
    from hookline_sender.embedded import EmbeddedServer

PLAN, ORDER_PAID = shop("billing")
LEGS = pytest.mark.parametrize("leg", ["redis", "valkey"])


@contextlib.asynccontextmanager
async def working(deployment: Deployment, billing: Endpoint) -> AsyncGenerator[Publisher]:
    """A worker and a publisher at work."""
    worker = Worker(PLAN, deployment, environ=environ_of(billing=billing.url))
    async with worker.background(), Publisher(PLAN, deployment) as publisher:
        yield publisher


async def order(publisher: Publisher, number: int) -> str:
    done = await publisher.publish(ORDER_PAID, Order(order_id=str(number)), id=f"order-{number}")
    return done.receipts[0].delivery_id


async def order_at_last(publisher: Publisher, number: int) -> str:
    """Publish, and repeat with the same id while the server refuses."""
    async with asyncio.timeout(HANG):
        while True:
            with contextlib.suppress(RedisUnavailable, WeakDurability):
                return await order(publisher, number)
            await asyncio.sleep(0.05)


async def attempts_of(deployment: Deployment, ids: list[str]) -> list[tuple[State, int]]:
    async with records(deployment) as tasks:
        return [(record.state, record.attempts) for record in [await tasks.of(one) for one in ids]]


@contextlib.asynccontextmanager
async def held_by_a_script(redis_url: str) -> AsyncGenerator[None]:
    """Somebody's script runs and runs; ended with SCRIPT KILL."""
    async with Redis.from_url(redis_url) as killer, contextlib.AsyncExitStack() as stack:
        foreign = stack.enter_context(contextlib.closing(untyped_client(redis_url)))
        await killer.config_set("lua-time-limit", 50)
        running = asyncio.create_task(asyncio.to_thread(foreign.eval, "while true do end", 0))
        await until(lambda: _refused(killer), bool)
        try:
            yield
        finally:
            await killer.script_kill()
            await asyncio.gather(running, return_exceptions=True)


async def _refused(client: Redis) -> bool:
    try:
        await client.ping()
    except ResponseError as error:
        return str(error).startswith("BUSY")
    return False


@LEGS
def test_a_server_that_is_held_by_a_script_is_unavailable_and_all_goes_on_afterwards(  # cases: F07
    leg: str, namespace: str
) -> None:
    async def go(redis: EmbeddedServer) -> None:
        deployment = deployment_on(redis.url, namespace)
        async with Endpoint() as billing, working(deployment, billing) as publisher:
            billing.gate.clear()
            ids = [await order(publisher, 1)]
            await billing.received(1)
            async with held_by_a_script(redis.url):
                billing.gate.set()
                with pytest.raises(RedisUnavailable, match="BUSY"):
                    await order(publisher, 2)
                with pytest.raises(RedisUnavailable, match="BUSY"):
                    await Publisher(PLAN, deployment).__aenter__()
            ids.append(await order_at_last(publisher, 2))
            for delivery_id in ids:
                await reached(deployment, delivery_id, State.COMPLETED)
        assert await attempts_of(deployment, ids) == [(State.COMPLETED, 1)] * 2

    with leg_server(leg) as redis:
        run(go(redis))


def test_a_worker_that_starts_while_a_script_holds_the_server_waits_for_it(namespace: str) -> None:
    async def go(redis: EmbeddedServer) -> None:
        deployment = deployment_on(redis.url, namespace)
        (delivery_id,) = await publish(PLAN, deployment, ORDER_PAID, 1)
        async with Endpoint() as billing:
            worker = Worker(PLAN, deployment, environ=environ_of(billing=billing.url))
            async with contextlib.AsyncExitStack() as stack:
                async with held_by_a_script(redis.url):
                    await stack.enter_async_context(worker.background())
                await reached(deployment, delivery_id, State.COMPLETED)
            assert len(billing.requests) == 1

    with server() as redis:
        run(go(redis))


def test_after_a_failover_workers_and_publishers_leave_the_old_master_by_themselves(
    namespace: str,
) -> None:  # cases: F10
    """The address moves and no connection breaks: what the old master refuses has to make them look again."""

    async def go(master: EmbeddedServer, replica: EmbeddedServer) -> None:
        async with Proxy(master.url) as proxy, Endpoint() as billing:
            deployment = deployment_on(proxy.url, namespace)
            async with working(deployment, billing) as publisher:
                billing.gate.clear()
                await widened(deployment, "billing")
                ids = [await order(publisher, number) for number in range(3)]
                await billing.received(3)
                proxy.lead_to(replica.url)
                await asyncio.to_thread(failed_over, master, replica)
                billing.gate.set()
                ids += [await order_at_last(publisher, number) for number in range(3, 6)]
                for delivery_id in ids:
                    await reached(deployment_on(replica.url, namespace), delivery_id, State.COMPLETED)
            assert await attempts_of(deployment_on(replica.url, namespace), ids) == [(State.COMPLETED, 1)] * 6

    with start_master() as master, replica_of(master) as replica:
        run(go(master, replica))


def test_an_idle_worker_finds_the_new_master_too(namespace: str) -> None:
    async def go(master: EmbeddedServer, replica: EmbeddedServer) -> None:
        async with Proxy(master.url) as proxy, Endpoint() as billing:
            worker = Worker(PLAN, deployment_on(proxy.url, namespace), environ=environ_of(billing=billing.url))
            async with worker.background():
                proxy.lead_to(replica.url)
                await asyncio.to_thread(failed_over, master, replica)
                await publish(PLAN, deployment_on(replica.url, namespace), ORDER_PAID, 1)
                assert len(await billing.received(1)) == 1

    with start_master() as master, replica_of(master) as replica:
        run(go(master, replica))


def test_a_server_that_becomes_weak_is_noticed_although_no_connection_is_lost(namespace: str) -> None:
    async def go(url: str) -> None:
        async with Publisher(PLAN, deployment_on(url, namespace)) as publisher, Redis.from_url(url) as client:
            assert publisher._open is not None
            publisher._open.store._dialogue._check_interval = 0.0  # else half a minute
            await order(publisher, 1)
            await client.config_set("appendfsync", "everysec")
            with pytest.raises(WeakDurability, match="appendfsync=everysec"):
                await order(publisher, 2)

    with server() as redis:
        run(go(redis.url))


def test_an_asserted_deployment_still_refuses_a_replica(namespace: str) -> None:
    with server() as replica:
        with contextlib.closing(untyped_client(replica.url)) as client:
            client.replicaof("127.0.0.1", closed_port())
        with pytest.raises(WeakDurability, match=r"role=slave \(need master\)"):
            run(publish(PLAN, deployment_on(replica.url, namespace, durability="asserted"), ORDER_PAID, 1))


async def snapshot(client: Redis, status: str) -> None:
    """Let the server try a snapshot that ends in `status`."""
    await until(lambda: client.info("persistence"), lambda told: not told["rdb_bgsave_in_progress"])
    await client.bgsave()
    await until(lambda: client.info("persistence"), lambda told: told["rdb_last_bgsave_status"] == status)


@LEGS
def test_a_server_that_cannot_save_refuses_and_is_not_hammered(leg: str, namespace: str) -> None:  # cases: F13
    async def go(redis: EmbeddedServer) -> None:
        deployment = deployment_on(redis.url, namespace)
        async with (
            Redis.from_url(redis.url) as client,
            Endpoint() as billing,
            working(deployment, billing) as publisher,
        ):
            billing.gate.clear()
            ids = [await order(publisher, 1)]
            await billing.received(1)
            file = f"{(await client.config_get('dir'))['dir']}/dump.rdb"
            await asyncio.to_thread(_obstruct, file)
            await client.config_set("save", "3600 1000000")
            await snapshot(client, "err")
            billing.gate.set()
            with pytest.raises(RedisUnavailable, match="MISCONF"):
                await order(publisher, 2)
            before = (await client.info("stats"))["total_commands_processed"]
            await asyncio.sleep(1)
            assert (await client.info("stats"))["total_commands_processed"] - before < 60
            await asyncio.to_thread(shutil.rmtree, file)
            await snapshot(client, "ok")
            ids.append(await order_at_last(publisher, 2))
            for delivery_id in ids:
                await reached(deployment, delivery_id, State.COMPLETED)
        assert await attempts_of(deployment, ids) == [(State.COMPLETED, 1)] * 2

    with leg_server(leg) as redis:
        run(go(redis))


def _obstruct(snapshot_file: str) -> None:
    (Path(snapshot_file) / "in the way").mkdir(parents=True)
