"""A destination whose answers are cut at a cap: its next connection waits, and nobody else's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from hookline_sender.egress import AddressPolicy, FastTransport, HttpxTransport, TransportFailed, pauses
from tests.support import HANG, in_time, run
from tests.support_egress import endpoint, status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support_egress import Endpoint

OurTransport = HttpxTransport | FastTransport
LONG = 10 * HANG
"""Seconds that no test lives to see the end of."""
BODY, HEAD = status(200, body=b"x" * 100_000), status(200, f"x-much: {'x' * 20_000}")


@pytest.fixture(params=[HttpxTransport, FastTransport])
def transport(request: pytest.FixtureRequest) -> Iterator[OurTransport]:
    made: OurTransport = request.param(AddressPolicy(allow_loopback_http=True))
    yield made
    run(made.aclose())


def for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "PAUSE", LONG)
    monkeypatch.setattr(pauses, "LONGEST", LONG)


async def post(used: OurTransport, there: Endpoint, destination: str = "loud", within: float = LONG) -> int | str:
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

    for_good(monkeypatch)
    run(go())


def test_the_pause_is_as_long_as_it_says(transport: OurTransport) -> None:
    async def go() -> float:
        loop = asyncio.get_running_loop()
        async with endpoint(BODY) as there:
            begun = loop.time()
            assert [await post(transport, there) for _ in range(4)] == [200] * 4
            return loop.time() - begun

    assert run(go()) > 3 * pauses.PAUSE


def test_a_pause_leaves_a_request_half_of_its_time(transport: OurTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go(seconds: float) -> list[int | str]:
        async with endpoint(BODY) as there:
            return [await post(transport, there, within=seconds) for _ in range(2)]

    for_good(monkeypatch)
    both = [200, 200]
    assert in_time(lambda seconds: run(go(seconds)), lambda found: found == both, 2.0) == both


def test_an_answer_of_the_longest_length_is_no_flood(transport: OurTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        async with endpoint(status(200, "connection: close", body=b"x" * 65_536)) as there:
            assert [await post(transport, there) for _ in range(3)] == [200] * 3

    for_good(monkeypatch)
    run(go())


def test_an_answer_cut_by_its_deadline_is_no_flood(transport: OurTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [status(200, body=b"x" * 5)[:-5], status(200)]

    async def answer(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(answers[0])

    async def go() -> None:
        async with endpoint(answer) as there:
            assert await post(transport, there, within=0.5) in (200, "timeout")
            del answers[0]
            assert await post(transport, there) == 200

    for_good(monkeypatch)
    run(go())
