"""The durable ledger on a real server: faults, memory, settings, and callers that go away."""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING, Any

import pytest
import redis
from redis.asyncio import Redis

from hookline_receiver import InvalidReceiver, LedgerUnavailable, RedisLedger, WeakDurability
from hookline_receiver.ledger.protocol import Claimed, Done, Entry, Full
from tests.support import run, server
from tests.support_receiver import Order, call, receiver, signed, until

if TYPE_CHECKING:
    from hookline_receiver.ledger.protocol import Claim
    from hookline_sender.embedded import EmbeddedServer


pytestmark = pytest.mark.usefixtures("unhurried")


def entry() -> Entry:
    return Entry(secrets.token_bytes(32), secrets.token_bytes(32))


async def claimed(ledger: RedisLedger, delivery: Entry) -> Claimed:
    claim = await ledger.claim(delivery, secrets.token_bytes(16), 60)
    assert isinstance(claim, Claimed), claim
    return claim


async def handled(ledger: RedisLedger) -> Entry:
    delivery = entry()
    await ledger.complete(await claimed(ledger, delivery), 204)
    return delivery


async def command(url: str, *words: object) -> object:
    async with Redis.from_url(url) as client:
        untyped: Any = client
        return await untyped.execute_command(*words)


def test_a_killed_server_refuses_and_comes_back_with_every_row(namespace: str) -> None:
    async def go() -> None:
        with server() as running:
            async with (ledger := RedisLedger(running.url, namespace=namespace)).opened():
                delivery = await handled(ledger)
                running.kill()
                with pytest.raises(LedgerUnavailable):
                    await ledger.claim(entry(), bytes(16), 60)
                running.restart()
                assert await ledger.find(delivery) == Done(204)

    run(go())


def test_a_receiver_whose_server_is_away_does_not_start(namespace: str) -> None:
    async def go() -> None:
        with server() as running:
            running.kill()
            with pytest.raises(LedgerUnavailable):
                async with RedisLedger(running.url, namespace=namespace).opened():
                    pass

    run(go())


def test_while_the_server_is_down_deliveries_are_answered_503_and_not_handled(namespace: str) -> None:  # cases: E23
    async def go() -> None:
        seen: list[object] = []
        with server() as running:
            app = receiver(ledger=RedisLedger(running.url, namespace=namespace))
            app.on("order.paid", Order)(seen.append)
            async with app.lifespan():
                running.kill()
                reply = await call(app, *signed())
        assert (reply.status, reply.headers[b"retry-after"], seen) == (503, b"1", [])

    run(go())


def test_32_copies_at_once_run_the_handler_once(redis_url: str, namespace: str) -> None:  # cases: E17
    async def go() -> None:
        seen: list[object] = []
        apps = [receiver(ledger=RedisLedger(redis_url, namespace=namespace)) for _ in range(2)]  # two processes' worth
        for app in apps:
            app.on("order.paid", Order)(seen.append)
        request = signed()
        async with apps[0].lifespan(), apps[1].lifespan():
            replies = await asyncio.gather(*(call(apps[n % 2], *request) for n in range(32)))
        assert {reply.status for reply in replies} <= {204, 503}
        assert len(seen) == 1

    run(go())


def test_a_flushed_script_cache_is_filled_again(namespace: str) -> None:
    async def go() -> None:
        with server() as running:
            async with (ledger := RedisLedger(running.url, namespace=namespace)).opened():
                claim = await claimed(ledger, delivery := entry())
                await command(running.url, "SCRIPT FLUSH")
                assert await ledger.complete(claim, 204)
                assert await ledger.find(delivery) == Done(204)

    run(go())


def test_a_server_without_memory_refuses_claims_and_still_records_outcomes(namespace: str) -> None:
    async def go() -> None:
        with server() as running:
            async with (ledger := RedisLedger(running.url, namespace=namespace)).opened():
                claim = await claimed(ledger, delivery := entry())
                await command(running.url, "CONFIG SET", "maxmemory", "1")
                assert await ledger.claim(entry(), bytes(16), 60) == Full()
                assert await ledger.complete(claim, 204)
                assert await ledger.find(delivery) == Done(204)

    run(go())


@pytest.mark.parametrize("durability", ["asserted", "unsafe_volatile"])
def test_a_server_that_may_forget_is_refused_unless_it_is_accepted(durability: str, namespace: str) -> None:
    async def go() -> None:
        with server(extra={"appendfsync": "everysec"}) as running:
            with pytest.raises(WeakDurability, match=r"appendfsync=everysec \(need always\)") as refused:
                async with RedisLedger(running.url, namespace=namespace).opened():
                    pass
            assert refused.value.faults == ("appendfsync=everysec (need always)",)
            accepted = RedisLedger.from_env(
                {"REDIS_URL": running.url, "HOOKLINE_NAMESPACE": namespace, "HOOKLINE_DURABILITY": durability}
            )
            async with accepted.opened():
                await handled(accepted)

    run(go())


def test_a_volatile_ledger_says_so_at_each_start(
    redis_url: str, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def go() -> None:
        ledger = RedisLedger(redis_url, namespace=namespace, durability="unsafe_volatile")
        for _ in range(2):
            async with ledger.opened():
                pass

    with caplog.at_level(logging.WARNING):
        run(go())
    assert len(caplog.messages) == 2
    assert all("unsafe_volatile" in message for message in caplog.messages)


def test_settings_that_drift_stop_claims_until_they_are_repaired(namespace: str) -> None:
    async def go() -> None:
        with server() as running:
            async with (ledger := RedisLedger(running.url, namespace=namespace, check_interval=0.01)).opened():
                await command(running.url, "CONFIG SET", "appendfsync", "no")
                await until(lambda: answer(ledger), lambda claim: isinstance(claim, WeakDurability))
                await command(running.url, "CONFIG SET", "appendfsync", "always")
                repaired = await until(lambda: answer(ledger), lambda claim: isinstance(claim, Claimed))
                assert isinstance(repaired, Claimed)

    run(go())


async def answer(ledger: RedisLedger) -> Claim | LedgerUnavailable:
    try:
        return await ledger.claim(entry(), bytes(16), 60)
    except LedgerUnavailable as error:
        return error


def test_a_cancelled_call_leaves_no_reply_for_the_next_one(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with (ledger := RedisLedger(redis_url, namespace=namespace)).opened():
            known = {number: entry() for number in range(200, 210)}
            for status, delivery in known.items():
                await ledger.complete(await claimed(ledger, delivery), status)
            for turn in range(300):
                call = asyncio.create_task(ledger.claim(entry(), bytes(16), 60))
                for _ in range(turn % 12):
                    await asyncio.sleep(0)
                call.cancel()
                status = 200 + turn % 10
                assert await ledger.find(known[status]) == Done(status)

    run(go())


def test_a_ledger_shared_by_two_receivers_closes_with_the_last(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        ledger = RedisLedger(redis_url, namespace=namespace)
        async with ledger.opened():
            async with ledger.opened():
                pass
            await handled(ledger)
        assert not ledger._links._made

    run(go())


def test_a_ledger_serves_one_loop_after_another(redis_url: str, namespace: str) -> None:  # cases: A73
    async def once() -> None:
        async with ledger.opened():
            assert await ledger.find(await handled(ledger)) == Done(204)

    ledger = RedisLedger(redis_url, namespace=namespace)
    run(once())
    run(once())


def test_a_ledger_serves_loops_side_by_side_each_on_one_connection(redis_url: str, namespace: str) -> None:
    async def once() -> None:
        async with ledger.opened():
            assert await ledger.find(await handled(ledger)) == Done(204)

    async def go(observer: Any) -> None:
        async with ledger.opened():
            await handled(ledger)
            await asyncio.to_thread(run, once())
            before = observer.info("stats")["total_connections_received"]
            await handled(ledger)
            assert observer.info("stats")["total_connections_received"] == before

    ledger = RedisLedger(redis_url, namespace=namespace)
    with redis.Redis.from_url(redis_url) as observer:
        run(go(observer))


def test_its_rows_stay_under_300_bytes_each(redis_server: EmbeddedServer, namespace: str) -> None:
    async def go() -> None:
        async with (ledger := RedisLedger(redis_server.url, namespace=namespace)).opened():
            for _ in range(20):  # all at once they would lose patience with a slow disk
                await asyncio.gather(*(handled(ledger) for _ in range(50)))
        key = f"hookline:{{{namespace}:ledger}}:"
        sizes = [
            await command(redis_server.url, "MEMORY USAGE", key + name, "SAMPLES", 0) for name in ("rows", "expiry")
        ]
        assert sum(int(str(size)) for size in sizes) < 300_000

    run(go())


def test_the_address_comes_from_the_environment(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with ledger.opened(), (same := RedisLedger(redis_url, namespace=namespace)).opened():
            assert await same.find(await handled(ledger)) == Done(204)

    environ = {"REDIS_URL": "redis://a", "HOOKLINE_REDIS_URL": redis_url, "HOOKLINE_NAMESPACE": namespace}
    ledger = RedisLedger.from_env(environ)
    run(go())
    with pytest.raises(InvalidReceiver, match="HOOKLINE_REDIS_URL"):
        RedisLedger.from_env({})


@pytest.mark.parametrize(
    "options",
    [
        {"url": "http://x"},
        {"namespace": "Shop"},
        {"namespace": ""},
        {"durability": "sure"},
        {"max_rows": 0},
        {"retention": 0},
        {"retention": float("inf")},
        {"max_rows": float("inf")},
        {"check_interval": float("inf")},
        {"url": "redis://:pass-word/1@x"},
        {"url": "redis://[::1"},
        {"url": "redis://x?socket_timeout=pass-word"},
        {"url": "redis://x?pass-word=1"},
    ],
)
def test_an_impossible_ledger_is_refused_without_showing_its_address(options: dict[str, object]) -> None:
    with pytest.raises(InvalidReceiver) as refused:
        RedisLedger(**{"url": "redis://:pass-word@x", "namespace": "n", **options})  # type: ignore[arg-type]
    assert "pass-word" not in f"{refused.value}{refused.value.__cause__}{refused.value.__context__}"


def test_its_repr_shows_no_address() -> None:
    assert repr(RedisLedger("redis://:pass-word@x", namespace="n")) == "RedisLedger(<hidden>, namespace='n')"
