"""A worker that dies delays its deliveries and loses none; the receiver handles each once."""

from __future__ import annotations

import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from hookline_sender.engine.records import State
from tests.support import HANG, eventually, run, serve, server
from tests.support_crash import DEPOT_KEY, ROUNDS, HoldingReceiver, depot_at, publish_parcels
from tests.support_crash_worker import stop, worker_process
from tests.support_invariants import faults

if TYPE_CHECKING:
    import subprocess

    from tests.support_engine import Engine
    from tests.support_raw import RawEndpoint

IN_FLIGHT = 50


def kill(worker: subprocess.Popen[str]) -> None:
    worker.send_signal(signal.SIGKILL)
    assert worker.wait(HANG) == -signal.SIGKILL


@pytest.mark.parametrize("_round", range(ROUNDS or 3))
def test_fifty_deliveries_of_a_killed_worker_are_each_handled_once(  # cases: A08 A09 F16
    namespace: str, _round: int
) -> None:
    with server() as redis:
        receiver = HoldingReceiver(redis, namespace, DEPOT_KEY)
        with serve(receiver.app) as url:
            run(publish_parcels(redis.url, namespace, range(IN_FLIGHT)))
            with worker_process(redis.url, namespace, depot_at(f"{url}/")) as worker:
                eventually(lambda: receiver.waiting == IN_FLIGHT or worker.poll() is not None)
                kill(worker)
            receiver.released.set()
            with worker_process(redis.url, namespace, depot_at(f"{url}/")):
                # The dead worker's requests go on at the receiver; the repeats are answered from its ledger.
                eventually(lambda: receiver.app.counters["replayed"] >= IN_FLIGHT)
    assert receiver.handled == Counter(range(IN_FLIGHT))


def test_an_idle_worker_takes_over_from_a_killed_one_without_any_traffic(
    engine: Engine, redis_url: str, endpoint: RawEndpoint
) -> None:
    endpoint.held.add("killed")
    namespace = engine.layout.namespace
    with worker_process(redis_url, namespace, depot_at(endpoint.url("idle"))) as idle:
        idle.send_signal(
            signal.SIGSTOP
        )  # until the other has the task: to start a process takes longer than an attempt
        with worker_process(redis_url, namespace, depot_at(endpoint.url("killed"))) as killed:
            (delivery_id,) = run(publish_parcels(redis_url, namespace, range(1), timeout=4.0))
            eventually(lambda: endpoint.of("killed"))
            kill(killed)
        idle.send_signal(signal.SIGCONT)
        eventually(lambda: engine.inspect(delivery_id).state is State.COMPLETED)
    assert len(endpoint.of("idle")) == 1
    history = engine.inspect(delivery_id).history
    assert [(each.number, each.code) for each in history] == [(1, "worker_lost"), (2, "")]
    assert faults(engine) == []


def test_a_task_that_kills_every_worker_ends_as_worker_lost_and_the_others_are_delivered(  # cases: A08 A10
    engine: Engine, redis_url: str, endpoint: RawEndpoint
) -> None:
    namespace, environ = engine.layout.namespace, depot_at(endpoint.url("depot"))
    ids = run(publish_parcels(redis_url, namespace, range(10), attempts=3))
    for _ in range(3):  # a supervisor
        with worker_process(redis_url, namespace, environ, "dies", concurrency=1) as worker:
            assert worker.wait(HANG) == -signal.SIGKILL
    with worker_process(redis_url, namespace, environ, "dies", concurrency=1) as worker:
        eventually(lambda: engine.counters().get("open", 0) == 0)
        stop(worker)
    poison, *others = (engine.inspect(one) for one in ids)
    assert (poison.state, poison.code, poison.attempts) == (State.FAILED, "worker_lost", 3)
    assert {each.state for each in others} == {State.COMPLETED}
    assert faults(engine) == []
