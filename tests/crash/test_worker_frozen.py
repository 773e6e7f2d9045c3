"""A worker that was frozen or blocked past its leases: others finish, and it neither sends nor changes anything."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING, Any

import pytest

from hookline_sender.engine.records import State
from tests.support import eventually, run
from tests.support_crash import ROUNDS, depot_at, publish_parcels
from tests.support_crash_worker import stop, worker_process
from tests.support_invariants import faults

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from tests.support_engine import Engine
    from tests.support_raw import RawEndpoint

PARCELS = 50


def tasks(engine: Engine) -> dict[str, Any]:
    """Everything there is but what workers remember, counters and the time."""
    return engine.dump("W:", "cnt", "meta")


@contextlib.contextmanager
def thawed_at_last(worker: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        worker.send_signal(signal.SIGCONT)


def finished_by_another(engine: Engine, redis_url: str, endpoint: RawEndpoint) -> None:
    with worker_process(redis_url, engine.layout.namespace, depot_at(endpoint.url("other"))) as other:
        eventually(lambda: engine.counters().get("completed") == PARCELS)
        stop(other)


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("_round", range(ROUNDS or 1))
def test_a_frozen_worker_sends_nothing_and_changes_nothing_once_its_leases_were_taken(  # cases: A05 A68
    engine: Engine, redis_url: str, endpoint: RawEndpoint, *, held: bool, _round: int
) -> None:
    """Frozen with every request at the endpoint, or as soon as the first one is there."""
    if held:
        endpoint.held.add("zombie")
    namespace = engine.layout.namespace
    with worker_process(redis_url, namespace, depot_at(endpoint.url("zombie"))) as zombie, thawed_at_last(zombie):
        ids = run(
            publish_parcels(redis_url, namespace, range(PARCELS), timeout=3.0)
        )  # none may end before it is frozen
        eventually(lambda: len(endpoint.of("zombie")) >= (PARCELS if held else 1))
        zombie.send_signal(signal.SIGSTOP)
        finished_by_another(engine, redis_url, endpoint)
        # Some it may have settled before; the others were taken from it, and each outcome it still has is refused.
        # It has one of all that it held; frozen amid a claim, it may have learnt of others too late to try them.
        taken = sum(engine.inspect(one).attempts > 1 for one in ids)
        before, refused = tasks(engine), engine.counters().get("settle_lost", 0)
        bytes_before, sent_before = endpoint.bytes_read, len(endpoint.of("zombie"))
        endpoint.held.clear()
        zombie.send_signal(signal.SIGCONT)
        if held:
            eventually(lambda: engine.counters().get("settle_lost", 0) == refused + taken)
        stop(zombie)
    # Between the last look at a lease and the write of that one request lie microseconds, and it may be frozen in them.
    late = len(endpoint.of("zombie")) - sent_before
    assert late <= (0 if held else 1)
    assert late or endpoint.bytes_read == bytes_before
    lost = engine.counters().get("settle_lost", 0) - refused
    assert lost == taken if held else lost <= taken
    assert tasks(engine) == before
    assert faults(engine) == []


def test_a_worker_whose_loop_was_blocked_past_its_leases_sends_nothing(  # cases: A06
    engine: Engine, redis_url: str, endpoint: RawEndpoint
) -> None:
    namespace = engine.layout.namespace
    ids = run(publish_parcels(redis_url, namespace, range(PARCELS), timeout=3.0))
    with worker_process(redis_url, namespace, depot_at(endpoint.url("blocked")), "blocks") as blocked:
        assert blocked.stdin is not None
        eventually(lambda: len(engine.dump().get("leases", {})) == PARCELS)
        finished_by_another(engine, redis_url, endpoint)
        blocked.stdin.write("go on\n")
        blocked.stdin.flush()
        # Of a turn whose answer came amid the block it may have learnt too late to have an outcome of its tasks.
        eventually(lambda: engine.counters().get("settle_lost"))
        stop(blocked)
    assert endpoint.of("blocked") == []
    assert len({request.body for request in endpoint.of("other")}) == PARCELS
    assert {engine.inspect(one).state for one in ids} == {State.COMPLETED}
    assert faults(engine) == []
