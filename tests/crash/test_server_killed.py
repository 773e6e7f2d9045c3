"""A Redis server that is killed has every publication it acknowledged, whole."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis

from hookline_sender import HooklineError, Publisher
from tests.support import run
from tests.support_crash import PARCEL_SENT, ROUNDS, Parcel, crash_deployment, crash_plan
from tests.support_deliveries import WEBHOOKS, delivered_by_a_worker
from tests.support_receiver import asking, leg_server, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hookline_sender.embedded import EmbeddedServer


async def some_time(_: EmbeddedServer) -> None:
    await asyncio.sleep(random.uniform(0.2, 0.8))  # noqa: S311 - a moment to die at


async def amid_a_rewrite(redis: EmbeddedServer) -> None:
    """Return while the server rewrites its append-only file, which is slow enough not to be over at once."""
    async with Redis.from_url(redis.url) as client:
        for number in range(200):
            await client.set(f"filler:{number}", bytes(1000))
        await client.config_set("rdb-key-save-delay", 50_000)
        await client.bgrewriteaof()
        await until(partial(client.info, "persistence"), lambda told: told["aof_rewrite_in_progress"])
        await some_time(redis)
        assert (await client.info("persistence"))["aof_rewrite_in_progress"]


async def acknowledged_until_killed(
    redis: EmbeddedServer, namespace: str, moment: Callable[[EmbeddedServer], Awaitable[None]]
) -> set[int]:
    plan = crash_plan(*WEBHOOKS)
    numbers, acknowledged = iter(range(1_000_000)), set[int]()

    async def keep_publishing(publisher: Publisher) -> None:
        with suppress(HooklineError):
            while True:
                number = next(numbers)
                await publisher.publish(PARCEL_SENT, Parcel(number=number), id=f"parcel-{number}")
                acknowledged.add(number)

    async with Publisher(plan, crash_deployment(redis.url, namespace)) as publisher:
        callers = [asyncio.create_task(keep_publishing(publisher)) for _ in range(50)]
        await until(asking(lambda: acknowledged), bool)
        await moment(redis)
        redis.kill()
        await asyncio.gather(*callers)
    return acknowledged


@pytest.mark.parametrize("leg", ["redis", "valkey"])
@pytest.mark.parametrize("moment", [some_time, amid_a_rewrite])
@pytest.mark.parametrize("_round", range(ROUNDS or 1))
def test_every_publication_a_killed_server_acknowledged_is_there_and_whole(
    namespace: str, leg: str, moment: Callable[[EmbeddedServer], Awaitable[None]], _round: int
) -> None:
    with leg_server(leg) as redis:
        acknowledged = run(acknowledged_until_killed(redis, namespace, moment))
        redis.restart()
        delivered = run(delivered_by_a_worker(redis, namespace))
    numbers = {number for _, number in delivered}
    assert acknowledged <= numbers
    assert delivered == Counter((name, number) for name in WEBHOOKS for number in numbers)
