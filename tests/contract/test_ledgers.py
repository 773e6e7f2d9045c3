"""What every ledger promises, on each of them; the clocks are the stores' own."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from hookline_receiver.ledger.memory import MemoryLedger
from hookline_receiver.ledger.protocol import Busy, Claimed, Conflict, Done, Entry, Full
from hookline_receiver.ledger.redis import RedisLedger
from tests.support import run
from tests.support_receiver import leg_server, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from hookline_receiver.ledger.protocol import Claim, Ledger
    from hookline_sender.embedded import EmbeddedServer

    Open = Callable[..., contextlib.AbstractAsyncContextManager[Ledger]]

pytestmark = pytest.mark.usefixtures("unhurried")
LONG, SHORT = 60.0, 0.05


@pytest.fixture(scope="module", params=["memory", "redis", "valkey"])
def server(request: pytest.FixtureRequest) -> Iterator[EmbeddedServer | None]:
    """A server of each supported kind, and None for the ledger that needs none."""
    if request.param == "memory":
        yield None
        return
    with leg_server(request.param) as running:
        yield running


@pytest.fixture
def ledgers(server: EmbeddedServer | None, namespace: str) -> Open:
    """Opens an empty ledger; options are those of its constructor."""

    def make(**options: Any) -> Ledger:
        if server is None:
            return MemoryLedger(allow_volatile=True, **options)
        return RedisLedger(server.url, namespace=namespace, **options)

    @contextlib.asynccontextmanager
    async def opened(**options: Any) -> AsyncIterator[Ledger]:
        ledger = make(**options)
        async with ledger.opened():
            yield ledger

    return opened


def entry(body: bytes = b"{}") -> Entry:
    return Entry(secrets.token_bytes(32), body.ljust(32, b"\0"))


def owner() -> bytes:
    return secrets.token_bytes(16)


def held(claim: Claim) -> Claimed:
    assert isinstance(claim, Claimed), claim
    return claim


async def reclaimed(ledger: Ledger, delivery: Entry, lease: float = LONG) -> Claimed:
    """The next claim, as soon as the one that holds the delivery has lapsed."""
    found = await until(lambda: ledger.claim(delivery, owner(), lease), lambda claim: isinstance(claim, Claimed))
    return held(found)


def test_a_new_delivery_is_claimed_with_the_first_fence(ledgers: Open) -> None:
    async def go() -> None:
        async with ledgers() as ledger:
            assert held(await ledger.claim(entry(), owner(), LONG)).fence == 1

    run(go())


def test_a_claimed_delivery_is_busy_for_everybody_else(ledgers: Open) -> None:
    async def go() -> None:
        async with ledgers() as ledger:
            delivery = entry()
            await ledger.claim(delivery, owner(), LONG)
            busy = await ledger.claim(delivery, owner(), LONG)
            assert isinstance(busy, Busy)
            assert LONG - 10 < busy.remaining <= LONG

    run(go())


def test_of_32_claims_at_once_one_wins(ledgers: Open) -> None:
    async def go() -> None:
        async with ledgers() as ledger:
            delivery = entry()
            claims = await asyncio.gather(*(ledger.claim(delivery, owner(), LONG) for _ in range(32)))
            assert sum(isinstance(claim, Claimed) for claim in claims) == 1
            assert sum(isinstance(claim, Busy) for claim in claims) == 31

    run(go())


def test_a_claim_sent_twice_is_answered_alike(ledgers: Open) -> None:
    async def go() -> None:
        async with ledgers() as ledger:
            delivery, us = entry(), owner()
            assert await ledger.claim(delivery, us, LONG) == await ledger.claim(delivery, us, LONG)

    run(go())


def test_a_completed_delivery_is_done_with_its_status(ledgers: Open) -> None:
    async def go() -> None:
        async with ledgers() as ledger:
            delivery = entry()
            claim = held(await ledger.claim(delivery, owner(), LONG))
            assert await ledger.find(delivery) is None
            assert await ledger.complete(claim, 202)
            assert await ledger.claim(delivery, owner(), LONG) == Done(202) == await ledger.find(delivery)

    run(go())


def test_another_body_is_a_conflict_in_every_state(ledgers: Open) -> None:
    async def go() -> None:
        async with ledgers() as ledger:
            delivery = entry(b"one")
            other = Entry(delivery.key, entry(b"two").fingerprint)
            claim = held(await ledger.claim(delivery, owner(), LONG))
            assert await ledger.claim(other, owner(), LONG) == Conflict()
            await ledger.release(claim)
            assert await ledger.claim(other, owner(), LONG) == Conflict()
            await ledger.complete(await reclaimed(ledger, delivery), 204)
            assert await ledger.claim(other, owner(), LONG) == Conflict() == await ledger.find(other)

    run(go())


def test_a_released_delivery_is_claimed_again_with_the_next_fence(ledgers: Open) -> None:
    async def go() -> None:
        async with ledgers() as ledger:
            delivery = entry()
            assert await ledger.release(held(await ledger.claim(delivery, owner(), LONG)))
            assert held(await ledger.claim(delivery, owner(), LONG)).fence == 2

    run(go())


def test_a_lapsed_claim_is_taken_over_and_its_fence_is_lost(ledgers: Open) -> None:
    async def go() -> None:
        async with ledgers() as ledger:
            delivery = entry()
            late = held(await ledger.claim(delivery, owner(), SHORT))
            successor = await reclaimed(ledger, delivery)
            assert successor.fence == 2
            assert not await ledger.renew(late, LONG)
            assert not await ledger.release(late)
            assert not await ledger.complete(late, 204)
            assert await ledger.complete(successor, 204)

    run(go())


@pytest.mark.parametrize("forge", [{"owner": bytes(16)}, {"fence": 2}], ids=lambda forge: next(iter(forge)))
def test_only_owner_and_fence_together_settle_a_claim(ledgers: Open, forge: dict[str, Any]) -> None:
    async def go() -> None:
        async with ledgers() as ledger:
            claim = held(await ledger.claim(entry(), owner(), LONG))
            other = replace(claim, **forge)
            assert not await ledger.renew(other, LONG)
            assert not await ledger.release(other)
            assert not await ledger.complete(other, 204)
            assert await ledger.complete(claim, 204)

    run(go())


def test_a_lapsed_claim_that_nobody_took_can_still_be_completed(ledgers: Open) -> None:
    async def go() -> None:
        async with ledgers() as ledger:
            delivery = entry()
            late = held(await ledger.claim(delivery, owner(), 0.001))
            await asyncio.sleep(0.02)  # twenty leases
            assert await ledger.complete(late, 204)
            assert await ledger.find(delivery) == Done(204)

    run(go())


def test_a_renewed_claim_stays_busy_beyond_its_first_lease(ledgers: Open) -> None:
    async def go() -> None:
        async with ledgers() as ledger:
            delivery = entry()
            assert await ledger.renew(held(await ledger.claim(delivery, owner(), SHORT)), LONG)
            busy = await ledger.claim(delivery, owner(), LONG)
            assert isinstance(busy, Busy)
            assert busy.remaining > SHORT

    run(go())


def test_settling_twice_is_answered_alike_and_writes_once(ledgers: Open) -> None:
    async def go() -> None:
        async with ledgers() as ledger:
            delivery = entry()
            claim = held(await ledger.claim(delivery, owner(), LONG))
            assert await ledger.release(claim)
            assert await ledger.release(claim)
            assert not await ledger.complete(claim, 204)
            claim = held(await ledger.claim(delivery, owner(), LONG))
            assert await ledger.complete(claim, 201)
            assert await ledger.complete(claim, 204)
            assert not await ledger.release(claim)
            assert not await ledger.renew(claim, LONG)
            assert await ledger.find(delivery) == Done(201)

    run(go())


def test_a_full_ledger_refuses_new_deliveries_and_keeps_the_old(ledgers: Open) -> None:
    async def go() -> None:
        async with ledgers(max_rows=2) as ledger:
            first, second = entry(), entry()
            claim = held(await ledger.claim(first, owner(), LONG))
            await ledger.release(held(await ledger.claim(second, owner(), LONG)))
            assert await ledger.claim(entry(), owner(), LONG) == Full()
            assert isinstance(await ledger.claim(second, owner(), LONG), Claimed)
            assert await ledger.complete(claim, 204)
            assert await ledger.find(first) == Done(204)

    run(go())


def test_a_row_past_its_retention_makes_room(ledgers: Open) -> None:
    async def go() -> None:
        async with ledgers(max_rows=1, retention=3) as ledger:
            first = entry()
            await ledger.complete(held(await ledger.claim(first, owner(), LONG)), 204)
            assert await ledger.claim(entry(), owner(), LONG) == Full()
            await reclaimed(ledger, entry())
            assert await ledger.find(first) is None

    run(go())


def test_a_claim_outlives_a_retention_shorter_than_its_lease(ledgers: Open) -> None:
    async def go() -> None:
        async with ledgers(retention=1) as ledger:
            claimed, renewed, over = entry(), entry(), entry()
            await ledger.claim(claimed, owner(), LONG)
            await ledger.renew(held(await ledger.claim(renewed, owner(), SHORT)), LONG)
            await ledger.complete(held(await ledger.claim(over, owner(), LONG)), 204)
            await until(lambda: ledger.find(over), lambda found: found is None)
            assert isinstance(await ledger.claim(claimed, owner(), LONG), Busy)
            assert isinstance(await ledger.claim(renewed, owner(), LONG), Busy)

    run(go())


def test_an_ended_claim_is_kept_for_the_retention_and_not_for_its_lease(ledgers: Open) -> None:
    async def go() -> None:
        async with ledgers(retention=3, max_rows=2) as ledger:
            await ledger.complete(held(await ledger.claim(entry(), owner(), LONG)), 204)
            await ledger.release(held(await ledger.claim(entry(), owner(), LONG)))
            assert await ledger.claim(entry(), owner(), LONG) == Full()
            await reclaimed(ledger, entry())

    run(go())
