"""The store trusts a server only as long as it was seen to be durable, and says when it is full."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from hookline_sender.deployment import Deployment
from hookline_sender.engine import commands
from hookline_sender.engine.records import Dead, State, TurnAnswer
from hookline_sender.engine.store import RedisStore
from hookline_sender.errors import NamespaceFull, PlanMismatch, RedisUnavailable, WeakDurability
from hookline_sender.policy import HooklineWarning
from tests.support import run
from tests.support_engine import OK, Engine, settlements
from tests.support_receiver import leg_server

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

    from hookline_sender.embedded import EmbeddedServer
    from hookline_sender.engine.records import Outcome, Published

MIB = 1 << 20
DRIFTS = {
    "appendfsync": "everysec",
    "appendonly": "no",
    "no-appendfsync-on-rewrite": "yes",
    "maxmemory-policy": "allkeys-lru",
}


@pytest.fixture(scope="module", params=["redis", "valkey"])
def own_server(request: pytest.FixtureRequest) -> Iterator[EmbeddedServer]:
    """A server of each kind that these tests may reconfigure, fill and empty."""
    with leg_server(request.param) as running:
        yield running


@pytest.fixture
def engine(own_server: EmbeddedServer, namespace: str) -> Iterator[Engine]:
    """Looks at the namespace past the store; every setting is back at the end."""
    made = Engine(own_server.url, namespace)
    names = [*DRIFTS, "maxmemory"]
    before = made.redis.config_get(*names)
    yield made
    for name, value in before.items():
        made.redis.config_set(name, value)
    made.redis.close()


@contextlib.asynccontextmanager
async def opened(
    engine: Engine, url: str, *, check_interval: float = 30.0, **options: Any
) -> AsyncGenerator[RedisStore]:
    deployment = Deployment(url, namespace=engine.layout.namespace, **options)
    store = await RedisStore.connect(deployment, check_interval=check_interval)
    try:
        await store.bind(engine.plan)
        yield store
    finally:
        await store.aclose()


def publish(engine: Engine, key: str, body: bytes = b"{}") -> commands.Command[Published]:
    return commands.publish(engine.layout, engine.request(key, body=body))


@pytest.mark.parametrize(("setting", "weak"), DRIFTS.items())
def test_a_weak_server_is_refused_at_the_start_with_the_line_to_paste(  # cases: A18
    engine: Engine, own_server: EmbeddedServer, setting: str, weak: str
) -> None:
    engine.redis.config_set(setting, weak)
    with pytest.raises(WeakDurability, match=f"{setting}={weak}") as refused:
        run(RedisStore.connect(Deployment(own_server.url, namespace="shop")))
    assert f"CONFIG SET {setting}" in str(refused.value)


def test_a_setting_that_drifts_is_noticed_at_the_next_check_and_trusted_again_when_it_is_back(
    engine: Engine, own_server: EmbeddedServer
) -> None:
    async def go() -> None:
        async with opened(engine, own_server.url, check_interval=0.0) as store:
            engine.redis.config_set("appendfsync", "everysec")
            for _ in range(2):
                with pytest.raises(WeakDurability, match="appendfsync=everysec"):
                    await store.ready()
            engine.redis.config_set("appendfsync", "always")
            await store.ready()

    run(go())


def test_between_two_checks_the_server_is_not_asked(engine: Engine, own_server: EmbeddedServer) -> None:
    async def go() -> None:
        async with opened(engine, own_server.url) as store:
            before = engine.redis.info("commandstats")["cmdstat_info"]["calls"]
            for _ in range(50):
                await store.ready()
            assert engine.redis.info("commandstats")["cmdstat_info"]["calls"] == before + 1

    run(go())


def test_a_connection_that_was_lost_is_checked_again_before_anything_is_sent_on_the_next(
    engine: Engine, own_server: EmbeddedServer
) -> None:
    async def go() -> None:
        async with opened(engine, own_server.url) as store:
            engine.redis.config_set("appendfsync", "everysec")
            engine.redis.client_kill_filter(_type="normal", skipme=True)
            with pytest.raises(WeakDurability):
                await store.run(publish(engine, "a"))
            assert engine.counters() == {}

    run(go())


def test_another_process_behind_the_address_is_reported(
    own_server: EmbeddedServer, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine(own_server.url, namespace)

    async def go() -> None:
        async with opened(engine, own_server.url) as store:
            await store.run(publish(engine, "a"))
            own_server.restart()
            await store.ready()
            with contextlib.suppress(RedisUnavailable):
                assert (await store.run(publish(engine, "a"))).duplicate
            await store.ready()

    run(go())
    engine.redis.close()
    assert "another process than before" in caplog.text


@pytest.mark.filterwarnings("ignore::hookline_sender.policy.HooklineWarning")
@pytest.mark.parametrize("durability", ["asserted", "unsafe_volatile"])
def test_a_server_that_one_vouches_for_is_not_judged(
    engine: Engine, own_server: EmbeddedServer, durability: str
) -> None:
    engine.redis.config_set("appendfsync", "everysec")

    async def go() -> Published:
        async with opened(engine, own_server.url, durability=durability) as store:
            return await store.run(publish(engine, "a"))

    assert not run(go()).duplicate


def test_choosing_to_lose_events_warns_at_each_start(engine: Engine, own_server: EmbeddedServer) -> None:
    async def go() -> None:
        async with opened(engine, own_server.url, durability="unsafe_volatile"):
            pass

    for _ in range(2):
        with pytest.warns(HooklineWarning, match="unsafe_volatile") as warned:
            run(go())
        assert len(warned) == 1


def test_too_few_replicas_are_a_weakness(engine: Engine, own_server: EmbeddedServer) -> None:
    with pytest.raises(WeakDurability, match="connected_slaves=0"):
        run(RedisStore.connect(Deployment(own_server.url, namespace="shop", min_replicas=1)))


def used(engine: Engine) -> int:
    return int(engine.redis.info("memory")["used_memory"])


def test_out_of_memory_refuses_publications_whole_while_turns_go_on(  # cases: F05
    engine: Engine, own_server: EmbeddedServer
) -> None:
    async def go() -> None:
        async with opened(engine, own_server.url) as store:
            await store.run_many([publish(engine, str(number)) for number in range(4)])
            engine.redis.config_set("maxmemory", used(engine) // 2)
            before = engine.dump()
            for key in ("a", "b"):
                with pytest.raises(NamespaceFull, match="out of memory"):
                    await store.run(publish(engine, key, bytes(MIB)))
            assert engine.dump() == before
            done, dead = [(await store.run(turn(engine, 2))).tasks for _ in range(2)]
            await store.run(turn(engine, 0, done))
            await store.run(turn(engine, 0, dead, Dead("http_4xx", 1, 404)))
            assert engine.counters() == {"completed": 2, "failed": 2}
            redriven = await store.run(commands.redrive(engine.layout, dead[0].delivery_id, "r1"))
            assert redriven.state is State.ACCEPTED
            engine.redis.config_set("maxmemory", 0)
            assert not (await store.run(publish(engine, "a"))).duplicate

    run(go())


def turn(
    engine: Engine, slots: int, tasks: tuple[Any, ...] = (), outcome: Outcome = OK
) -> commands.Command[TurnAnswer]:
    return commands.turn(engine.layout, engine.plan.fingerprint, engine.asking(slots, settlements(tasks, outcome)))


def test_above_nine_tenths_of_the_memory_publications_are_refused_and_the_rest_of_the_batch_runs(
    engine: Engine, own_server: EmbeddedServer
) -> None:
    async def go() -> None:
        async with opened(engine, own_server.url, check_interval=0.0) as store:
            await store.run(publish(engine, "a"))
            engine.redis.config_set("maxmemory", int(used(engine) / 0.95))
            await store.ready()
            first, answer = await store.run_many(mixed(engine))
            assert isinstance(first, NamespaceFull)
            assert isinstance(answer, TurnAnswer)
            assert [task.event_key for task in answer.tasks] == ["a"]
            engine.redis.config_set("maxmemory", 0)
            await store.ready()
            assert not (await store.run(publish(engine, "b"))).duplicate

    run(go())


def mixed(engine: Engine) -> list[commands.Command[Published | TurnAnswer]]:
    return [publish(engine, "b"), turn(engine, 5)]


def test_an_idle_store_sends_nothing_and_its_turns_write_nothing(engine: Engine, own_server: EmbeddedServer) -> None:
    async def go() -> None:
        async with opened(engine, own_server.url) as store:
            await store.run(turn(engine, 5))
            before, writes = engine.redis.info("persistence"), calls(engine)
            for _ in range(5):
                await store.ready()
                await store.run(turn(engine, 5))
            after = engine.redis.info("persistence")
            assert after["aof_current_size"] == before["aof_current_size"]
            assert {name: now - writes.get(name, 0) for name, now in calls(engine).items()} == {
                **dict.fromkeys(writes, 0),
                "evalsha": 5,
            }

    run(go())


def calls(engine: Engine) -> dict[str, int]:
    """Calls by command of what clients send and of everything that writes."""
    counted = (
        "evalsha",
        "set",
        "hset",
        "zadd",
        "zrem",
        "del",
        "unlink",
        "rpush",
        "lpush",
        "ltrim",
        "hincrby",
        "publish",
    )
    told = engine.redis.info("commandstats")
    return {name: told[f"cmdstat_{name}"]["calls"] for name in counted if f"cmdstat_{name}" in told}


def test_a_flushed_server_is_refused_until_the_plan_is_bound_again(engine: Engine, own_server: EmbeddedServer) -> None:
    async def go() -> None:
        async with opened(engine, own_server.url) as store:
            await store.run(publish(engine, "a"))
            engine.redis.flushall()
            refusals: list[Callable[[], Any]] = [lambda: publish(engine, "b"), lambda: turn(engine, 5)]
            for refused in refusals:
                with pytest.raises(PlanMismatch, match="emptied"):
                    await store.run(refused())
            assert engine.redis.dbsize() == 0
            await store.bind(engine.plan)
            assert not (await store.run(publish(engine, "a"))).duplicate

    run(go())
