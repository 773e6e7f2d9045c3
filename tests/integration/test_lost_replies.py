"""A reply that is lost or late: the command is sent again, changes nothing and is answered as it was the first time."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import hiredis
import pytest

from hookline_sender.deployment import Deployment
from hookline_sender.engine import commands, registry
from hookline_sender.engine.link import Link
from hookline_sender.engine.lua import _PARTS
from hookline_sender.engine.records import (
    Dead,
    DeliveryRecord,
    ListPage,
    ListRequest,
    Released,
    Retry,
    State,
    TurnAnswer,
)
from hookline_sender.engine.registry import Draft, Lookup, Resealing
from hookline_sender.engine.standing import Standing, standing
from hookline_sender.engine.store import RedisStore
from hookline_sender.errors import RedisUnavailable
from tests.support import HANG, run
from tests.support_engine import OK, Engine, Lane, settlements
from tests.support_invariants import faults
from tests.support_proxy import Proxy
from tests.support_receiver import asking, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

    from hookline_sender.embedded import EmbeddedServer
    from hookline_sender.engine.commands import Command
    from hookline_sender.engine.records import Outcome

    Prepared = Callable[[Engine], Command[Any]]

PATIENCE = 0.3  # seconds an exchange may take here
FAILED = Dead("http_4xx", 1, 404)


def publish(engine: Engine) -> Command[Any]:
    return commands.publish(engine.layout, engine.request("a", Lane("one"), Lane("two")))


def claim(engine: Engine) -> Command[Any]:
    for key in ("a", "b", "c"):
        engine.publish(key)
    return commands.turn(engine.layout, engine.plan.fingerprint, engine.asking())


def settling(outcome: Outcome) -> Prepared:
    def settle_and_claim(engine: Engine) -> Command[Any]:
        for key in ("a", "b"):
            engine.publish(key)
        ended = settlements(engine.claim(), outcome, 60)
        engine.publish("c")
        return commands.turn(engine.layout, engine.plan.fingerprint, engine.asking(1, ended))

    return settle_and_claim


def reap(engine: Engine) -> Command[Any]:
    engine.publish("a")
    engine.claim(lease_ms=1)
    engine.advance(6)
    engine.turn(0, worker="w2")  # somebody works: no outage
    engine.advance(6.5)
    return commands.reap(engine.layout)


def purge(engine: Engine) -> Command[Any]:
    engine.publish("a")
    engine.settle(engine.one())
    engine.advance(61)
    return commands.purge(engine.layout)


def cancel(engine: Engine) -> Command[Any]:
    engine.publish("a")
    return commands.cancel(engine.layout, engine.id_of("a"))


def cancel_running(engine: Engine) -> Command[Any]:
    engine.publish("a")
    return commands.cancel(engine.layout, engine.one().delivery_id)


def dead_letter(engine: Engine) -> str:
    engine.publish("a")
    engine.settle(engine.one(), FAILED)
    return engine.id_of("a")


def redrive(engine: Engine) -> Command[Any]:
    return commands.redrive(engine.layout, dead_letter(engine), "request-1")


def inspect(engine: Engine) -> Command[Any]:
    return commands.inspect(engine.layout, dead_letter(engine))


def list_(engine: Engine) -> Command[Any]:
    dead_letter(engine)
    return commands.list_(engine.layout, ListRequest(State.FAILED, 10))


def bind(engine: Engine) -> Command[Any]:
    return engine.bind_command(engine.plan, max_records=7)


def policies(engine: Engine) -> Command[Any]:
    return commands.policies(engine.layout, engine.plan.revision)


def draft(decided_on: str, public: str = "public") -> Draft:
    return Draft("dst", "acme", Lane("dst").id, "5", public, b"sealed", decided_on)


def register(engine: Engine) -> Command[Any]:
    return registry.register(engine.layout, engine.plan.fingerprint, draft(registry.NO_DESTINATIONS))


def registered(engine: Engine) -> str:
    """The version of a destination that is registered now and has a task."""
    version = str(engine.run(register(engine)).version)
    engine.publish("a", Lane("dst", config=int(version)), tenants=(("acme", version),))
    return version


def configure(engine: Engine) -> Command[Any]:
    return registry.configure(engine.layout, engine.plan.fingerprint, draft(registered(engine), "other"))


def remove(engine: Engine) -> Command[Any]:
    registered(engine)
    return registry.remove(engine.layout, "dst")


def pause(engine: Engine) -> Command[Any]:
    registered(engine)
    return registry.set_paused(engine.layout, "dst", paused=True)


def resume(engine: Engine) -> Command[Any]:
    engine.run(pause(engine))
    return registry.set_paused(engine.layout, "dst", paused=False)


def tenant(engine: Engine) -> Command[Any]:
    registered(engine)
    return registry.tenant_entries(engine.layout, "acme")


def lookup(engine: Engine) -> Command[Any]:
    registered(engine)
    return registry.lookup(engine.layout, ["dst", "nobody"])


def walk(engine: Engine) -> Command[Any]:
    registered(engine)
    return registry.walk(engine.layout, registry.START, 10)


def reseal(engine: Engine) -> Command[Any]:
    registered(engine)
    changes = [Resealing("dst", b"sealed", b"sealed anew"), Resealing("dst", b"other", b"sealed by nobody")]
    return registry.reseal(engine.layout, changes)


def stands(engine: Engine) -> Command[Any]:
    dead_letter(engine)
    return standing(engine.layout, Lane("billing").id, "billing")


OUTCOMES: dict[str, Outcome] = {"ok": OK, "retry": Retry("http_5xx", 1, 500), "dead": FAILED, "release": Released()}
_PLAIN: tuple[Prepared, ...] = (
    *(publish, claim, reap, purge, cancel, cancel_running, redrive, inspect, list_, bind, policies),
    *(register, configure, remove, pause, resume, tenant, lookup, walk, reseal, stands),
)
PREPARED: dict[str, Prepared] = {getattr(each, "__name__", ""): each for each in _PLAIN} | {
    f"settle {word}": settling(outcome) for word, outcome in OUTCOMES.items()
}
# How many were reaped or purged is told of each call by itself.
ANSWERED_ALIKE = PREPARED.keys() - {"reap", "purge"}


@pytest.fixture
def engine(any_server: EmbeddedServer, namespace: str) -> Iterator[Engine]:
    made = Engine(any_server.url, namespace, retention=60.0)
    with contextlib.closing(made.redis):
        yield made


@contextlib.asynccontextmanager
async def behind(proxy: Proxy, engine: Engine) -> AsyncGenerator[RedisStore]:
    store = await RedisStore.connect(Deployment(proxy.url, namespace=engine.layout.namespace))
    await store._link.aclose()
    store._link = Link(proxy.url, timeout=PATIENCE)
    try:
        await store.ready()
        yield store
    finally:
        await store.aclose()


def state(engine: Engine) -> dict[str, Any]:
    """Everything stored, without the times at which somebody was last seen."""
    dump = engine.dump()
    dump["meta"] = {k: v for k, v in dump["meta"].items() if not k.startswith((b"rev:", b"now", b"grace"))}
    return dump


def timeless(answer: Any) -> Any:
    match answer:
        case TurnAnswer():
            tasks = [replace(task, claimed_at_ms=0) for task in answer.tasks]
            ordered = tuple(sorted(tasks, key=lambda task: task.delivery_id))
            return replace(answer, now_ms=0, tasks=ordered, next_due_ms=None)
        case DeliveryRecord() | ListPage() | Standing():
            return replace(answer, now_ms=0)
        case Lookup():
            return replace(answer, now_ms=0, stamp_ms=0)
        case _:
            return answer


def read(command: Command[Any], reply: bytes) -> Any:
    reader = hiredis.Reader()
    reader.feed(reply)
    return command.parse(reader.gets())


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("name", PREPARED)
def test_a_command_whose_reply_did_not_come_is_sent_again_and_changes_nothing(  # cases: F03 A19
    engine: Engine, any_server: EmbeddedServer, name: str, *, late: bool
) -> None:
    command = PREPARED[name](engine)
    engine.redis.script_load(command.script.source)
    after_the_first: list[dict[str, Any]] = []

    async def go() -> tuple[Any, bytes]:
        async with Proxy(any_server.url) as proxy, behind(proxy, engine) as store:
            seen = [lambda: after_the_first.append(state(engine))]
            if late:
                proxy.hold_next_reply(2 * PATIENCE, *seen)
            else:
                proxy.lose_next_reply(*seen)
            return await store.run(command), proxy.lost[0]

    before = state(engine)
    answer, first = run(go())
    assert state(engine) == after_the_first[0]
    assert name not in ANSWERED_ALIKE or timeless(answer) == timeless(read(command, first))
    assert (state(engine) == before) == ("no-writes" in command.script.source.splitlines()[0])
    assert faults(engine) == []


def test_every_script_was_tried(redis_url: str, namespace: str) -> None:
    engines = (Engine(redis_url, f"{namespace}-{number}") for number in range(len(PREPARED)))
    tried = set[str]()
    for engine, prepare in zip(engines, PREPARED.values(), strict=False):
        with contextlib.closing(engine.redis):
            tried.add(prepare(engine).script.name)
    assert tried == _PARTS.keys()


def test_a_server_that_stands_still_is_an_error_in_bounded_time(  # cases: A15
    engine: Engine, any_server: EmbeddedServer
) -> None:
    async def go() -> None:
        async with Proxy(any_server.url) as proxy, behind(proxy, engine) as store:
            proxy.refuses = True
            proxy.swallow()
            async with asyncio.timeout(HANG):
                with pytest.raises(RedisUnavailable, match="cannot be reached"):
                    await store.run(publish(engine))
            await until(asking(lambda: proxy.open), lambda count: count == 0)

    run(go())
