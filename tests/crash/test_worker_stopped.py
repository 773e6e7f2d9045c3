"""SIGTERM: no more is claimed, what has begun is finished, given back or called interrupted, the process ends."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from hookline_sender.engine.records import Released, State
from tests.support import HANG, eventually, run
from tests.support_crash import depot_at, publish_parcels
from tests.support_crash_worker import next_line, stop, worker_process
from tests.support_invariants import faults

if TYPE_CHECKING:
    from tests.support_engine import Engine
    from tests.support_raw import RawEndpoint

RELEASES = 8


def test_only_what_never_sent_a_byte_is_given_back_by_a_stopping_worker(
    engine: Engine, redis_url: str, endpoint: RawEndpoint
) -> None:
    """Of four attempts one never gets to its first byte, one never past it, two are slow and end within the grace."""
    namespace = engine.layout.namespace
    endpoint.held.add("depot")
    ids = run(publish_parcels(redis_url, namespace, range(4), timeout=6.0, backoff=60.0, max_backoff=60.0))
    environ = depot_at(endpoint.url("depot")) | {"LEASE": "30"}
    with worker_process(redis_url, namespace, environ, "overruns") as worker:
        assert {next_line(worker), next_line(worker)} == {"sending 0", "sending 1"}
        eventually(lambda: len(endpoint.of("depot")) == 2)
        worker.send_signal(signal.SIGTERM)
        time.sleep(0.5)  # the grace is the largest timeout and a second
        endpoint.held.clear()
        assert worker.wait(HANG) == 0
    told = [(each.state, each.code, each.attempts, each.releases) for each in map(engine.inspect, ids)]
    assert told == [
        (State.ACCEPTED, "", 0, 1),
        (State.WAITING, "interrupted", 1, 0),
        (State.COMPLETED, "", 1, 0),
        (State.COMPLETED, "", 1, 0),
    ]
    assert faults(engine) == []


def test_a_task_is_given_back_eight_times_and_the_ninth_costs_an_attempt(  # cases: A12
    engine: Engine, redis_url: str, endpoint: RawEndpoint
) -> None:
    namespace = engine.layout.namespace
    (delivery_id,) = run(publish_parcels(redis_url, namespace, range(1), timeout=1.5, backoff=60.0, max_backoff=60.0))
    environ = depot_at(endpoint.url("depot")) | {"LEASE": "30"}
    for _ in range(RELEASES):
        assert engine.settle(engine.one(), Released()) == "accepted"
    with worker_process(redis_url, namespace, environ, "overruns") as worker:
        assert next_line(worker) == "sending 0"
        stop(worker)
    record = engine.inspect(delivery_id)
    assert (record.state, record.code, record.attempts) == (State.WAITING, "interrupted", 1)
    assert endpoint.bytes_read == 0


def test_a_stopping_worker_leaves_the_rest_of_the_queue_to_others_at_once(  # cases: A13
    engine: Engine, redis_url: str, endpoint: RawEndpoint
) -> None:
    namespace = engine.layout.namespace
    endpoint.held.add("stopped")
    ids = run(publish_parcels(redis_url, namespace, range(22), timeout=5.0))
    with worker_process(redis_url, namespace, depot_at(endpoint.url("stopped")), concurrency=2) as stopped:
        eventually(lambda: len(endpoint.of("stopped")) == 2)
        stopped.send_signal(signal.SIGTERM)
        with worker_process(redis_url, namespace, depot_at(endpoint.url("other"))) as other:
            eventually(lambda: len(endpoint.of("other")) >= 20)
            assert stopped.wait(HANG) == 0  # its two attempts ran into their timeout
            eventually(lambda: engine.counters().get("completed") == len(ids))
            stop(other)
    assert len(endpoint.of("stopped")) == 2
    assert faults(engine) == []
