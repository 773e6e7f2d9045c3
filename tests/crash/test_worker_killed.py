"""A worker that dies delays its deliveries and loses none; the receiver handles each once."""

from __future__ import annotations

import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from hookline_receiver import SigningKey
from hookline_sender import Publisher
from tests.support import eventually, python, run, serve, server
from tests.support_crash import PARCEL_SENT, ROUNDS, HoldingReceiver, Parcel, crash_deployment, crash_plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hookline_sender.embedded import EmbeddedServer

IN_FLIGHT = 50


async def publish(server: EmbeddedServer, namespace: str, numbers: range) -> None:
    plan = crash_plan()
    async with Publisher(plan, crash_deployment(server.url, namespace)) as publisher:
        for number in numbers:
            await publisher.publish(PARCEL_SENT, Parcel(number=number), id=f"parcel-{number}")


def killed_with_all_in_flight(receiver: HoldingReceiver, arguments: list[str], environ: Mapping[str, str]) -> None:
    with python("-m", "tests.support_crash", *arguments, environ=environ) as worker:
        eventually(lambda: receiver.waiting == IN_FLIGHT or worker.poll() is not None)
        worker.send_signal(signal.SIGKILL)
        assert worker.wait(10) == -signal.SIGKILL


@pytest.mark.parametrize("_round", range(ROUNDS or 5))
def test_fifty_deliveries_of_a_killed_worker_are_each_handled_once(namespace: str, _round: int) -> None:
    key = SigningKey.generate()
    with server() as redis:
        receiver = HoldingReceiver(redis, namespace, key)
        with serve(receiver.app) as url:
            environ = {"DEPOT_URL": f"{url}/", "DEPOT_KEY": key.reveal()}
            run(publish(redis, namespace, range(IN_FLIGHT)))
            killed_with_all_in_flight(receiver, [redis.url, namespace], environ)
            receiver.released.set()
            with python("-m", "tests.support_crash", redis.url, namespace, environ=environ):
                # The dead worker's requests go on at the receiver; the repeats are answered from its ledger.
                eventually(lambda: receiver.app.counters["replayed"] == IN_FLIGHT, limit=30)
    assert receiver.handled == Counter(range(IN_FLIGHT))
