"""Whoever is killed amid whatever: no later event of an aggregate arrives before an earlier one is done with."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from hookline_sender import Publish, Publisher
from tests.support import eventually, run
from tests.support_crash import PARCEL_SENT, ROUNDS, Parcel, crash_deployment, crash_plan, depot_at
from tests.support_crash_worker import stop, worker_process
from tests.support_engine import Engine
from tests.support_invariants import faults
from tests.support_sender import widened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support_raw import RawEndpoint

AGGREGATES, EACH = 8, 10
PLAN = crash_plan(ordering="aggregate")


async def publish_all(redis_url: str, namespace: str) -> None:
    """Parcels 0, 1, 2, … about the aggregates 0 to 7 in turn. As many as the plan allows may be in flight at once."""
    await widened(crash_deployment(redis_url, namespace), "depot")
    parcels = [
        Publish(PARCEL_SENT, Parcel(number=number), id=f"parcel-{number}", aggregate=(str(number % AGGREGATES), number))
        for number in range(AGGREGATES * EACH)
    ]
    async with Publisher(PLAN, crash_deployment(redis_url, namespace)) as publisher:
        await publisher.publish_many(parcels)


def arrived(endpoint: RawEndpoint) -> list[int]:
    """The parcels of all requests in the order of their arrival, repeats included."""
    return [json.loads(request.body)["data"]["number"] for request in endpoint.of("depot")]


def repeats_removed(numbers: list[int]) -> list[int]:
    return [number for place, number in enumerate(numbers) if place == 0 or numbers[place - 1] != number]


@pytest.fixture
def looking(redis_url: str, namespace: str) -> Iterator[Engine]:
    """Looks at the namespace from outside."""
    engine = Engine(redis_url, namespace, PLAN)
    with closing(engine.redis):
        yield engine


@pytest.mark.parametrize("_round", range(ROUNDS or 1))
def test_killed_workers_never_let_a_later_event_of_an_aggregate_overtake(
    redis_url: str, looking: Engine, endpoint: RawEndpoint, _round: int
) -> None:
    namespace, environ = looking.layout.namespace, depot_at(endpoint.url("depot")) | {"ORDERING": "aggregate"}
    endpoint.held.add("depot")
    run(publish_all(redis_url, namespace))
    with (
        worker_process(redis_url, namespace, environ) as first,
        worker_process(redis_url, namespace, environ) as second,
    ):
        eventually(lambda: set(arrived(endpoint)) == set(range(AGGREGATES)))  # at once, and nothing that follows
        first.kill()
        endpoint.held.clear()
        eventually(lambda: len(arrived(endpoint)) >= 3 * AGGREGATES)
        second.kill()
    with worker_process(redis_url, namespace, environ) as third:
        eventually(lambda: looking.counters().get("completed") == AGGREGATES * EACH)
        stop(third)
    for aggregate in range(AGGREGATES):
        of_it = [number for number in arrived(endpoint) if number % AGGREGATES == aggregate]
        assert repeats_removed(of_it) == list(range(aggregate, AGGREGATES * EACH, AGGREGATES))
    assert faults(looking) == []
