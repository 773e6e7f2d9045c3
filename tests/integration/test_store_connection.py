"""The store's one connection: never another's reply, never a leak, scripts that come back, replies that got lost."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from hookline_sender.deployment import Deployment
from hookline_sender.engine import commands
from hookline_sender.engine.records import DeliveryRecord, Published, State
from hookline_sender.engine.store import RedisStore
from hookline_sender.engine.sync_store import SyncStore
from hookline_sender.engine.wake import WakeUps
from hookline_sender.errors import IdentityConflict, RedisUnavailable, UnknownDelivery
from hookline_shared.errors import HooklineError
from tests.support import HANG, eventually, python, run, server
from tests.support_engine import OK, Engine, Lane, settlements, untyped_client
from tests.support_receiver import asking, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from hookline_sender.embedded import EmbeddedServer


@pytest.fixture
def builder(any_server: EmbeddedServer, namespace: str) -> Iterator[Engine]:
    """Makes the requests, and looks at the same namespace past the store."""
    engine = Engine(any_server.url, namespace)
    with contextlib.closing(engine.redis):
        yield engine


@contextlib.asynccontextmanager
async def opened(engine: Engine, url: str, **options: Any) -> AsyncGenerator[RedisStore]:
    """A store of the engine's namespace, bound to its plan."""
    deployment = Deployment(url, namespace=engine.layout.namespace, **options)
    store = await RedisStore.connect(deployment)
    try:
        await store.bind(engine.plan)
        yield store
    finally:
        await store.aclose()


@pytest.mark.parametrize("options", ["decode_responses=true", "protocol=3", "retry_on_timeout=true&socket_timeout=1"])
def test_what_a_url_asks_of_redis_py_changes_no_reply(
    builder: Engine, any_server: EmbeddedServer, options: str
) -> None:
    url = any_server.url + ("&" if "?" in any_server.url else "?") + options

    async def go() -> None:
        async with opened(builder, url) as store:
            assert not (await store.run(publish(builder, "1"))).duplicate
        other = SyncStore.connect(Deployment(url, namespace=builder.layout.namespace))
        assert other.run(publish(builder, "1")).duplicate
        other.close()

    run(go())


def test_what_is_asked_while_a_store_closes_is_refused_and_opens_no_connection(
    builder: Engine, any_server: EmbeddedServer
) -> None:
    builder.publish("0")  # from here on the server knows the script, and one exchange is enough

    async def go() -> None:
        async with opened(builder, any_server.url) as store:
            in_flight = asyncio.create_task(store.run(publish(builder, "1")))
            await asyncio.sleep(0)
        with pytest.raises(HooklineError, match="closed"):
            await store.run(publish(builder, "2"))
        assert not (await in_flight).duplicate

    run(go())


WITHOUT_HIREDIS = """
import asyncio, sys
sys.modules["hiredis"] = None
from hookline_sender import Deployment, RedisUnavailable
from hookline_sender.engine.store import RedisStore
from hookline_sender.engine.sync_store import SyncStore
from hookline_sender.engine.wake import WakeUps
deployment = Deployment(sys.argv[1], namespace="shop", durability="asserted")
for connect in (SyncStore.connect, lambda to: asyncio.run(RedisStore.connect(to))):
    try:
        connect(deployment)
    except RedisUnavailable:
        print("unavailable")
"""


NONSENSE = {"http": b"HTTP/1.1 400 Bad\r\n\r\n", "number": b":x\r\n", "size": b"$x\r\n", "depth": b"*1\r\n" * 5000}


@pytest.mark.parametrize("reply", NONSENSE.values(), ids=NONSENSE.keys())
def test_what_is_no_reply_of_redis_is_an_outage(reply: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)
        writer.write(reply)
        await writer.drain()
        writer.close()

    async def go() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as nonsense:
            url = f"redis://127.0.0.1:{nonsense.sockets[0].getsockname()[1]}"
            with python("-c", WITHOUT_HIREDIS, url) as told:
                said, _ = await asyncio.to_thread(told.communicate, timeout=HANG)
            assert said == "unavailable\nunavailable\n"

    run(go())


def publish(engine: Engine, key: str, **changes: Any) -> commands.Command[Published]:
    return commands.publish(engine.layout, engine.request(key, **changes))


def test_a_batch_answers_each_command_in_its_place(builder: Engine, any_server: EmbeddedServer) -> None:
    async def go() -> list[Published | HooklineError]:
        async with opened(builder, any_server.url) as store:
            await store.run(publish(builder, "b"))
            return await store.run_many(
                [
                    publish(builder, "a"),
                    publish(builder, "b", body=b"other"),
                    publish(builder, "b"),
                    publish(builder, "c"),
                ]
            )

    first, conflict, duplicate, last = run(go())
    assert isinstance(conflict, IdentityConflict)
    assert [answer.duplicate for answer in (first, duplicate, last) if isinstance(answer, Published)] == [
        False,
        True,
        False,
    ]


def test_a_flushed_script_is_loaded_again_and_the_command_runs_once(  # cases: F04
    builder: Engine, any_server: EmbeddedServer
) -> None:
    async def go() -> None:
        async with opened(builder, any_server.url) as store:
            for key in ("a", "b"):
                builder.redis.script_flush()
                assert not (await store.run(publish(builder, key))).duplicate
            builder.redis.script_flush()
            answer = await store.run(commands.turn(builder.layout, builder.plan.fingerprint, builder.asking()))
            assert len(answer.tasks) == 2

    run(go())


def test_pipelines_of_fifty_survive_a_storm_of_script_flushes(  # cases: F04
    builder: Engine, any_server: EmbeddedServer
) -> None:
    over = threading.Event()

    async def go() -> None:
        async with opened(builder, any_server.url) as store:
            flushing = asyncio.create_task(asyncio.to_thread(_flush, any_server.url, over))
            try:
                for round_ in range(10):
                    answers = await store.run_many([publish(builder, f"{round_}-{number}") for number in range(50)])
                    assert [isinstance(one, Published) and one.duplicate for one in answers] == [False] * 50
            finally:
                over.set()
                await flushing

    run(go())
    assert builder.counters()["open"] == 500


def _flush(url: str, over: threading.Event) -> None:
    with contextlib.closing(untyped_client(url)) as client:
        while not over.is_set():
            client.script_flush()


def test_a_cancelled_call_never_leaves_its_reply_to_another_and_no_connection(  # cases: F01 F02
    builder: Engine, any_server: EmbeddedServer
) -> None:
    keys = [f"k{number}" for number in range(20)]
    for key in keys:
        builder.publish(key)
    rand = random.Random(7)  # noqa: S311 - moments to cancel at
    ids = [builder.id_of(key) for key in keys]

    async def go() -> None:
        async with opened(builder, any_server.url) as store:
            before = len(builder.redis.client_list())
            cancelled = 0
            for _ in range(300):
                wanted = rand.sample(ids, 3)
                calls = [asyncio.create_task(store.run(commands.inspect(store.layout, one))) for one in wanted]
                await _moment(rand)
                calls[rand.randrange(3)].cancel()
                for one, answer in zip(wanted, await asyncio.gather(*calls, return_exceptions=True), strict=True):
                    cancelled += isinstance(answer, asyncio.CancelledError)
                    assert isinstance(answer, asyncio.CancelledError) or _is_of(answer, one)
            assert cancelled > 100
            assert len(builder.redis.client_list()) <= before

    run(go())


async def _moment(rand: random.Random) -> None:
    for _ in range(rand.randrange(6)):
        await asyncio.sleep(0)
    if rand.random() < 0.5:
        await asyncio.sleep(rand.random() / 1000)


def _is_of(answer: DeliveryRecord | BaseException, delivery_id: str) -> bool:
    assert isinstance(answer, DeliveryRecord), answer
    return answer.delivery_id == delivery_id and answer.state is State.ACCEPTED and answer.attempts == 0


def test_a_cancelled_publish_is_whole_or_absent(builder: Engine, any_server: EmbeddedServer) -> None:
    rand = random.Random(8)  # noqa: S311 - moments to cancel at
    lanes = tuple(Lane(f"d{number}") for number in range(5))

    async def go() -> None:
        async with opened(builder, any_server.url) as store:
            for number in range(100):
                command = commands.publish(store.layout, builder.request(str(number), *lanes))
                call = asyncio.create_task(store.run(command))
                await _moment(rand)
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
            for number in range(100):
                again = await store.run(commands.publish(store.layout, builder.request(str(number), *lanes)))
                assert len(again.lanes) == 5

    run(go())
    assert builder.counters() == {"open": 500, "o:billing": 500}


def test_callers_share_one_connection(builder: Engine, any_server: EmbeddedServer) -> None:
    async def go() -> None:
        before = len(builder.redis.client_list())
        async with opened(builder, any_server.url) as store:
            await asyncio.gather(*(store.run(publish(builder, str(number))) for number in range(30)))
            assert len(builder.redis.client_list()) == before + 1

    before = len(builder.redis.client_list())
    run(go())
    eventually(lambda: len(builder.redis.client_list()) == before)


def test_a_lost_reply_is_asked_for_again_and_changes_nothing(  # cases: F03
    builder: Engine, any_server: EmbeddedServer
) -> None:
    async def go() -> None:
        async with opened(builder, any_server.url) as store:
            for number in range(20):
                request = builder.request(str(number))
                killing = asyncio.create_task(asyncio.to_thread(_kill_clients, any_server.url))
                answer = await store.run(commands.publish(store.layout, request))
                await killing
                assert not answer.duplicate
            turn = builder.asking(64)
            tasks = (await store.run(commands.turn(store.layout, builder.plan.fingerprint, turn))).tasks
            _kill_clients(any_server.url)
            again = await store.run(commands.turn(store.layout, builder.plan.fingerprint, turn))
            assert {task.delivery_id for task in again.tasks} == {task.delivery_id for task in tasks}
            assert len(tasks) == 20

    run(go())


def _kill_clients(url: str) -> None:
    with contextlib.closing(untyped_client(url)) as client:
        client.client_kill_filter(_type="normal", skipme=True)


def test_an_unreachable_server_is_one_named_error_without_its_password(namespace: str) -> None:
    deployment = Deployment("redis://user:s3cret@127.0.0.1:1/0", namespace=namespace)
    with pytest.raises(RedisUnavailable, match=r"127\.0\.0\.1:1 cannot be reached") as refused:
        run(RedisStore.connect(deployment))
    assert "s3cret" not in str(refused.value)


def test_calls_fail_while_the_server_is_away_and_work_when_it_is_back(namespace: str) -> None:  # cases: A19
    with server() as own:
        engine = Engine(own.url, namespace)

        async def go() -> None:
            async with opened(engine, own.url) as store:
                await store.run(publish(engine, "a"))
                own.kill()
                with pytest.raises(RedisUnavailable):
                    await store.run(publish(engine, "b"))
                own.restart()
                assert (await store.run(publish(engine, "a"))).duplicate

        run(go())
        engine.redis.close()


def test_an_unknown_delivery_is_an_error_of_its_own(builder: Engine, any_server: EmbeddedServer) -> None:
    async def go() -> None:
        async with opened(builder, any_server.url) as store:
            with pytest.raises(UnknownDelivery):
                await store.run(commands.inspect(store.layout, "A" * 38))

    run(go())


def test_a_pruned_revision_is_bound_again_by_the_store_itself(builder: Engine, any_server: EmbeddedServer) -> None:
    async def go() -> None:
        async with opened(builder, any_server.url) as store:
            builder.redis.delete(builder.key(f"plan:{builder.plan.revision}"))
            answers = await store.run_many([publish(builder, "a"), publish(builder, "b")])
            assert [isinstance(answer, Published) for answer in answers] == [True, True]

    run(go())
    assert builder.counters()["open"] == 2


def test_a_waiting_worker_is_woken_by_a_publication(builder: Engine, any_server: EmbeddedServer) -> None:
    async def go() -> float:
        async with opened(builder, any_server.url) as store:
            await store.wait_wake(0.2)  # subscribes
            channel = store.layout.wake
            await until(asking(lambda: builder.redis.pubsub_numsub(channel)[0][1]), bool)
            begun = time.monotonic()
            waiting = asyncio.create_task(store.wait_wake(20))
            await store.run(publish(builder, "a"))
            await waiting
            return time.monotonic() - begun

    assert run(go()) < 5


@pytest.mark.parametrize("turns", range(4))
def test_a_wait_that_is_cancelled_as_the_wake_up_comes_is_cancelled(redis_url: str, turns: int) -> None:
    async def go() -> bool:
        wake_ups = WakeUps(redis_url, "nobody")
        waiting = asyncio.create_task(wake_ups.wait(20))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        wake_ups._woken.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        cancelled = waiting.cancel()
        await asyncio.wait([waiting])
        await wake_ups.aclose()
        return waiting.cancelled() == cancelled  # it may have ended before

    assert run(go())


def test_a_wait_ends_by_itself_also_while_the_server_is_away(namespace: str) -> None:
    with server() as own:
        engine = Engine(own.url, namespace)

        async def go() -> None:
            async with opened(engine, own.url) as store:
                await store.wait_wake(0.05)
                own.kill()
                await store.wait_wake(0.05)
                await store.wait_wake(0.05)
                with pytest.raises(RedisUnavailable):
                    await store.run(commands.reap(engine.layout))

        run(go())
        engine.redis.close()


def test_settling_and_claiming_through_the_store_ends_what_was_published(
    builder: Engine, any_server: EmbeddedServer
) -> None:
    async def go() -> None:
        async with opened(builder, any_server.url) as store:
            await store.run_many([publish(builder, str(number)) for number in range(10)])
            fingerprint = builder.plan.fingerprint
            tasks = (await store.run(commands.turn(store.layout, fingerprint, builder.asking()))).tasks
            last = builder.asking(10, settlements(tasks, OK))
            answer = await store.run(commands.turn(store.layout, fingerprint, last))
            assert answer.settled == ("completed",) * 10

    run(go())
    assert builder.counters() == {"completed": 10}
