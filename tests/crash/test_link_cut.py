"""A connection to Redis that goes silent, or is gone for longer than a lease, under workers and publishers at work."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from hookline_sender import Publisher, RedisUnavailable, Worker
from hookline_sender.engine.records import State
from tests.support import HANG, run
from tests.support_crash import PARCEL_SENT, Parcel, crash_deployment, crash_plan, depot_at, publish_parcels
from tests.support_invariants import faults
from tests.support_proxy import Proxy
from tests.support_receiver import asking, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support_engine import Engine
    from tests.support_raw import RawEndpoint


async def publishes_on(publisher: Publisher, numbers: range) -> None:
    """One after the other; what failed is repeated with its id."""
    for number in numbers:
        while True:
            with contextlib.suppress(RedisUnavailable):
                await publisher.publish(PARCEL_SENT, Parcel(number=number), id=f"parcel-{number}")
                break


def delivered(endpoint: RawEndpoint, name: str = "depot") -> Counter[int]:
    return Counter(json.loads(request.body)["data"]["number"] for request in endpoint.of(name))


async def all_there(engine: Engine, count: int) -> None:
    await until(asking(engine.counters), lambda counted: counted.get("completed") == count)


@pytest.mark.parametrize("how", [Proxy.swallow, Proxy.cut])
def test_silent_and_lost_connections_hold_up_workers_and_publishers_for_a_bounded_time(  # cases: A14 A15
    engine: Engine, redis_url: str, endpoint: RawEndpoint, how: Callable[[Proxy], None]
) -> None:
    async def go() -> None:
        async with Proxy(redis_url) as proxy:
            plan, deployment = crash_plan(timeout=5.0), crash_deployment(proxy.url, engine.layout.namespace)
            worker = Worker(plan, deployment, environ=depot_at(endpoint.url("depot")))
            async with worker.background(), Publisher(plan, deployment) as publisher:
                await publishes_on(publisher, range(5))
                await all_there(engine, 5)
                how(proxy)
                async with asyncio.timeout(HANG):
                    await publishes_on(publisher, range(5, 10))
                await all_there(engine, 10)

    run(go())
    assert delivered(endpoint) == Counter(range(10))
    assert faults(engine) == []


def test_a_worker_cut_off_for_two_leases_sends_nothing_and_changes_nothing_when_it_is_back(  # cases: A68
    engine: Engine, redis_url: str, endpoint: RawEndpoint
) -> None:
    async def go() -> None:
        endpoint.held.add("cut-off")
        namespace = engine.layout.namespace
        async with Proxy(redis_url) as proxy:
            cut_off = Worker(
                crash_plan(), crash_deployment(proxy.url, namespace), environ=depot_at(endpoint.url("cut-off"))
            )
            async with cut_off.background():
                ids = await publish_parcels(redis_url, namespace, range(3), timeout=3.0)  # none may end before the cut
                await until(asking(lambda: len(endpoint.of("cut-off"))), lambda count: count >= 3)
                proxy.refuses = True
                proxy.swallow()
                other = Worker(
                    crash_plan(), crash_deployment(redis_url, namespace), environ=depot_at(endpoint.url("other"))
                )
                async with other.background():
                    await all_there(engine, 3)
                before, bytes_before = engine.dump("W:", "cnt", "meta"), endpoint.bytes_read
                proxy.refuses = False
                proxy.cut()
                await until(asking(engine.counters), lambda counted: counted.get("settle_lost") == 3)
        assert {engine.inspect(one).state for one in ids} == {State.COMPLETED}
        assert (engine.dump("W:", "cnt", "meta"), endpoint.bytes_read) == (before, bytes_before)

    run(go())
    assert faults(engine) == []
