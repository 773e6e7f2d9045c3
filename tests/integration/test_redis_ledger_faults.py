"""What comes between a ledger and its server: failovers, lost replies, callers that leave."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
import signal
from typing import TYPE_CHECKING, Any

import pytest

from hookline_receiver import LedgerUnavailable, RedisLedger, WeakDurability
from hookline_receiver.ledger.protocol import Busy, Claimed, Done, Entry
from tests.support import HANG, closed_port, run, server
from tests.support_engine import untyped_client
from tests.support_failover import failed_over, replica_of, start_master
from tests.support_proxy import Proxy
from tests.support_receiver import call, handled_by, nothing, signed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from hookline_receiver.ledger.protocol import Claim
    from hookline_sender.embedded import EmbeddedServer

    Step = Callable[[RedisLedger, Claimed], Awaitable[object]]

CANCELLED = 1000  # calls
LEASE = 60.0


def entry() -> Entry:
    return Entry(secrets.token_bytes(32), secrets.token_bytes(32))


def owner() -> bytes:
    return secrets.token_bytes(16)


async def claimed(ledger: RedisLedger, delivery: Entry) -> Claimed:
    claim = await ledger.claim(delivery, owner(), LEASE)
    assert isinstance(claim, Claimed), claim
    return claim


@contextlib.asynccontextmanager
async def proxied(url: str, namespace: str, **options: Any) -> AsyncGenerator[tuple[RedisLedger, Proxy]]:
    """A ledger whose settings are checked at new connections only, and the proxy on its way."""
    options = {"check_interval": 3600.0, **options}
    async with Proxy(url) as proxy, (ledger := RedisLedger(proxy.url, namespace=namespace, **options)).opened():
        yield ledger, proxy


async def at_last(step: Callable[[], Awaitable[Any]]) -> Any:
    """The step's answer once the server gives one."""
    async with asyncio.timeout(HANG):
        while True:
            with contextlib.suppress(LedgerUnavailable):
                return await step()
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("durability", ["verified", "asserted"])
def test_after_a_failover_the_ledger_leaves_the_old_master_by_itself(
    durability: str, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The address moves and no connection breaks: what the old master refuses has to make it look again."""

    async def go(master: EmbeddedServer, replica: EmbeddedServer) -> None:
        async with proxied(master.url, namespace, durability=durability) as (ledger, proxy):
            done, running = entry(), entry()
            await ledger.complete(await claimed(ledger, done), 201)
            claim = await claimed(ledger, running)
            proxy.lead_to(replica.url)
            await asyncio.to_thread(failed_over, master, replica)
            assert await at_last(lambda: ledger.complete(claim, 204))
            assert (await ledger.find(done), await ledger.find(running)) == (Done(201), Done(204))
            assert isinstance(await at_last(lambda: ledger.claim(entry(), owner(), LEASE)), Claimed)

    with start_master() as master, replica_of(master) as replica:
        run(go(master, replica))
    assert "another process than before" in caplog.text


def test_a_claim_that_a_failover_lost_is_counted_as_lost_and_nothing_is_written(redis_url: str, namespace: str) -> None:
    async def go(successor: EmbeddedServer) -> tuple[int, int, object]:
        async with Proxy(redis_url) as proxy:
            ledger = RedisLedger(proxy.url, namespace=namespace)

            async def paid(event: object) -> None:
                proxy.lead_to(successor.url)  # promoted before it heard of the claim
                proxy.cut()

            app = handled_by(paid, ledger=ledger)
            async with app.lifespan():
                reply = await call(app, *signed())
            with contextlib.closing(untyped_client(successor.url)) as client:
                return reply.status, app.counters["fence_lost"], client.dbsize()

    with server() as successor:
        assert run(go(successor)) == (204, 1, 0)


def test_a_ledger_that_reaches_a_weaker_server_takes_no_claims_there_until_it_is_repaired(
    redis_url: str, namespace: str
) -> None:
    async def go(weak: EmbeddedServer) -> None:
        async with proxied(redis_url, namespace) as (ledger, proxy):
            proxy.lead_to(weak.url)
            proxy.cut()
            with pytest.raises(WeakDurability, match="appendfsync=everysec"):
                await ledger.claim(entry(), owner(), LEASE)
            with contextlib.closing(untyped_client(weak.url)) as client:
                client.config_set("appendfsync", "always")
            assert isinstance(await at_last(lambda: ledger.claim(entry(), owner(), LEASE)), Claimed)

    with server(extra={"appendfsync": "everysec"}) as weak:
        run(go(weak))


def test_an_asserted_ledger_still_refuses_a_replica(namespace: str) -> None:
    async def go(replica: EmbeddedServer) -> None:
        with pytest.raises(WeakDurability, match=r"role=slave \(need master\)"):
            async with RedisLedger(replica.url, namespace=namespace, durability="asserted").opened():
                pass

    with server() as replica:
        with contextlib.closing(untyped_client(replica.url)) as client:
            client.replicaof("127.0.0.1", closed_port())
        run(go(replica))


def test_a_server_that_hangs_is_given_up_in_time_and_used_again(namespace: str) -> None:
    async def go() -> None:
        with server() as running:
            async with (ledger := RedisLedger(running.url, namespace=namespace)).opened():
                await ledger.complete(await claimed(ledger, delivery := entry()), 204)
                os.kill(running.pid, signal.SIGSTOP)
                try:
                    async with asyncio.timeout(HANG):
                        with pytest.raises(LedgerUnavailable):
                            await ledger.find(delivery)
                finally:
                    os.kill(running.pid, signal.SIGCONT)
                assert await ledger.find(delivery) == Done(204)

    run(go())


def test_a_server_that_hung_finds_no_claims_of_callers_that_left(namespace: str) -> None:
    async def go() -> None:
        with server() as running:
            async with (ledger := RedisLedger(running.url, namespace=namespace)).opened():
                os.kill(running.pid, signal.SIGSTOP)
                try:
                    waiting = (ledger.claim(entry(), owner(), LEASE) for _ in range(1000))
                    claims = await asyncio.gather(*waiting, return_exceptions=True)
                finally:
                    os.kill(running.pid, signal.SIGCONT)
                assert all(isinstance(claim, LedgerUnavailable) for claim in claims)
                await claimed(ledger, entry())  # goes out after everything that waited before it
                with contextlib.closing(untyped_client(running.url)) as client:
                    rows = client.zcard(f"hookline:{{{namespace}:ledger}}:expiry")
                assert rows < 500  # what was on its way already

    run(go())


STEPS: dict[str, Step] = {
    "claim": lambda ledger, claim: ledger.claim(claim.entry, claim.owner, LEASE),
    "renew": lambda ledger, claim: ledger.renew(claim, LEASE),
    "complete": lambda ledger, claim: ledger.complete(claim, 204),
    "release": lambda ledger, claim: ledger.release(claim),
    "find": lambda ledger, claim: ledger.find(claim.entry),
}


@pytest.mark.parametrize(("step", "late"), [*((step, False) for step in STEPS), ("complete", True)])
def test_a_step_whose_reply_does_not_come_is_sent_again_and_answered_alike(
    step: str, *, late: bool, redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hookline_receiver.ledger.link.PATIENCE", HANG)  # of all tries; each has its second

    async def go() -> None:
        async with proxied(redis_url, namespace) as (ledger, proxy):
            claim, take = await claimed(ledger, entry()), STEPS[step]
            if late:
                proxy.hold_next_reply(1.2)  # longer than anybody listens
            else:
                proxy.lose_next_reply()
            first = await take(ledger, claim)
            assert len(proxy.lost) == 1
            assert first == await take(ledger, claim) == {"claim": claim, "find": None}.get(step, True)

    run(go())


async def cut_short(call: Awaitable[Any], rand: random.Random) -> bool:
    """Whether the call was cancelled before it ended, at some moment between its first step and its reply."""
    task = asyncio.ensure_future(call)
    for _ in range(rand.randrange(12)):
        await asyncio.sleep(0)
    if rand.random() < 0.5:
        await asyncio.sleep(rand.random() / 500)
    task.cancel()
    await asyncio.wait({task})
    return task.cancelled()


@pytest.mark.usefixtures("unhurried")
def test_a_thousand_cancelled_calls_leave_every_reply_to_its_caller_and_one_connection(
    redis_url: str, namespace: str
) -> None:
    async def go() -> int:
        rand, cancelled = random.Random(7), 0  # noqa: S311 - moments to cancel at
        async with proxied(redis_url, namespace) as (ledger, proxy):
            while cancelled < CANCELLED:
                known, victim = await claimed(ledger, entry()), await claimed(ledger, entry())
                calls = [ledger.claim(entry(), owner(), LEASE), *(take(ledger, victim) for take in STEPS.values())]
                rand.shuffle(calls)
                cuts = asyncio.gather(*(cut_short(call, rand) for call in calls))
                assert await ledger.complete(known, status := rand.randrange(200, 300))
                assert await ledger.find(known.entry) == Done(status)
                cancelled += sum(await cuts)
                assert await ended_or_claimable(ledger, victim)
            return proxy.accepted

    assert run(go()) == 1


async def ended_or_claimable(ledger: RedisLedger, victim: Claimed) -> bool:
    """Whether a delivery of cancelled steps is in one of the states that some of those steps lead to."""
    found: Claim = await ledger.claim(victim.entry, owner(), LEASE)
    match found:
        case Done(status):
            return status == 204
        case Claimed(fence=fence):
            return fence == 2
        case Busy(remaining):
            return remaining <= LEASE
        case _:
            return False


def test_a_delivery_that_is_handled_while_its_ledger_restarts_twice_is_recorded_once(namespace: str) -> None:
    async def go(redis: EmbeddedServer) -> list[tuple[int, bool]]:
        async def paid(event: object) -> None:
            for _ in range(2):
                await asyncio.to_thread(redis.kill)
                await asyncio.to_thread(redis.restart)

        request, replies = signed(), list[tuple[int, bool]]()
        for handler in (paid, nothing):
            app = handled_by(handler, ledger=RedisLedger(redis.url, namespace=namespace))
            async with app.lifespan():
                reply = await call(app, *request)
            replies.append((reply.status, b"x-axiom-replayed" in reply.headers))
        return replies

    with server() as redis:
        assert run(go(redis)) == [(204, False), (204, True)]
