"""A server whose disk fills up ends; what it acknowledged is there, whole, once there is room again."""

from __future__ import annotations

import asyncio
import resource
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis

from hookline_sender import Publisher, RedisUnavailable
from hookline_sender.embedded import EmbeddedServer
from tests.support import eventually, run
from tests.support_crash import PARCEL_SENT, Parcel, crash_deployment, crash_plan
from tests.support_deliveries import WEBHOOKS, delivered_by_a_worker
from tests.support_receiver import leg_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROOM = 200_000  # bytes that still fit


async def published_until_full(redis: EmbeddedServer, namespace: str) -> set[int]:
    numbers, acknowledged = iter(range(1_000_000)), set[int]()

    async def keep_publishing(publisher: Publisher) -> None:
        while True:
            number = next(numbers)
            await publisher.publish(PARCEL_SENT, Parcel(number=number), id=f"parcel-{number}")
            acknowledged.add(number)

    async with Redis.from_url(redis.url) as client:
        written = (await client.info("persistence"))["aof_current_size"]
    async with Publisher(crash_plan(*WEBHOOKS), crash_deployment(redis.url, namespace)) as publisher:
        resource.prlimit(redis.pid, resource.RLIMIT_FSIZE, (written + ROOM, resource.RLIM_INFINITY))
        ends = await asyncio.gather(*(keep_publishing(publisher) for _ in range(20)), return_exceptions=True)
    assert {type(end) for end in ends} == {RedisUnavailable}
    return acknowledged


@pytest.fixture(params=["redis", "valkey"])
def limitable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EmbeddedServer]:
    """A server for which a file that grows too long is an error of the write, as a full disk is, and no signal."""
    with leg_server(request.param) as found:
        command = found._command[0]
    binary = tmp_path / "server"
    binary.write_text(f'#!/bin/sh\ntrap "" XFSZ\nexec {command} "$@"\n', encoding="utf-8")
    binary.chmod(0o700)
    with EmbeddedServer.start(binary=str(binary)) as running:
        yield running


@pytest.mark.skipif(sys.platform != "linux", reason="limits the files of another process")
def test_what_was_acknowledged_before_the_disk_was_full_is_whole_when_there_is_room(
    limitable: EmbeddedServer, namespace: str
) -> None:
    acknowledged = run(published_until_full(limitable, namespace))
    process = limitable._process
    eventually(lambda: process is None or process.poll() is not None)
    limitable.restart()
    delivered = run(delivered_by_a_worker(limitable, namespace))
    numbers = {number for _, number in delivered}
    assert acknowledged
    assert acknowledged <= numbers
    assert delivered == Counter((name, number) for name in WEBHOOKS for number in numbers)
