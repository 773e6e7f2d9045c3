"""A destination whose answers are cut at a cap: its next connection waits, and nobody else's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from hookline_sender.egress import AddressPolicy, FastTransport, HttpxTransport, TransportFailed, pooled
from tests.support import HANG, run
from tests.support_egress import endpoint, status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support_egress import Endpoint

OurTransport = HttpxTransport | FastTransport
BODY, HEAD = status(200, body=b"x" * 100_000), status(200, f"x-much: {'x' * 20_000}")


@pytest.fixture(params=[HttpxTransport, FastTransport])
def transport(request: pytest.FixtureRequest) -> Iterator[OurTransport]:
    made: OurTransport = request.param(AddressPolicy(allow_loopback_http=True))
    yield made
    run(made.aclose())


async def post(used: OurTransport, there: Endpoint, destination: str = "loud", within: float = HANG) -> int | str:
    """The status, or why there is none."""
    deadline = asyncio.get_running_loop().time() + within
    try:
        return (await used.post(there.url, [], b"", deadline=deadline, destination=destination)).status
    except TransportFailed as failure:
        return failure.kind


@pytest.mark.parametrize(("flood", "told"), [(BODY, 200), (HEAD, "too_large")], ids=["body", "head"])
def test_the_next_connection_of_who_floods_waits_and_no_other_one(
    transport: OurTransport, monkeypatch: pytest.MonkeyPatch, flood: bytes, told: int | str
) -> None:
    async def go() -> None:
        async with endpoint(flood) as there:
            assert await post(transport, there) == told
            waiting = asyncio.ensure_future(post(transport, there))
            assert await post(transport, there, "another") == told
            assert (there.connections, waiting.done()) == (2, False)
            waiting.cancel()
            await asyncio.wait([waiting])

    monkeypatch.setattr(pooled, "FLOOD_PAUSE", 2 * HANG)
    run(go())


def test_the_pause_is_over_in_time_and_forgotten_with_a_whole_answer(
    transport: OurTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(BODY if number == 1 else status(200, "connection: close"))

    async def go() -> None:
        async with endpoint(answer) as there:
            begun = asyncio.get_running_loop().time()
            assert [await post(transport, there) for _ in range(2)] == [200, 200]
            assert asyncio.get_running_loop().time() - begun > 0.2
            monkeypatch.setattr(pooled, "FLOOD_PAUSE", 2 * HANG)
            assert await post(transport, there) == 200

    monkeypatch.setattr(pooled, "FLOOD_PAUSE", 0.2)
    run(go())


def test_a_pause_leaves_a_request_half_of_its_time(transport: OurTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        async with endpoint(BODY) as there:
            assert [await post(transport, there, within=2.0) for _ in range(2)] == [200, 200]

    monkeypatch.setattr(pooled, "FLOOD_PAUSE", 2 * HANG)
    run(go())


def test_an_answer_of_the_longest_length_is_no_flood(transport: OurTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        async with endpoint(status(200, "connection: close", body=b"x" * 65_536)) as there:
            assert [await post(transport, there) for _ in range(3)] == [200] * 3

    monkeypatch.setattr(pooled, "FLOOD_PAUSE", 2 * HANG)
    run(go())


def test_so_many_destinations_that_flood_are_remembered(
    transport: OurTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        async with endpoint(BODY) as there:
            for number in range(7):
                assert await post(transport, there, f"loud-{number}") == 200
                assert 0 < len(transport._flooding) <= 3

    monkeypatch.setattr(pooled, "_REMEMBERED", 3)
    run(go())
