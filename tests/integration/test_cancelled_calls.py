"""Calls that are cancelled at any moment: none gets another's reply, no connection leaks, nothing is half done."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from typing import TYPE_CHECKING, Any

import pytest

from hookline_sender.deployment import Deployment
from hookline_sender.engine import commands
from hookline_sender.engine.records import Published, Settlement, TurnAnswer
from hookline_sender.engine.store import RedisStore
from tests.support import run
from tests.support_engine import OK, Engine, Lane, settlements
from tests.support_invariants import faults
from tests.support_proxy import Proxy
from tests.support_receiver import asking, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hookline_sender.embedded import EmbeddedServer
    from hookline_sender.engine.records import ClaimedTask

CANCELLED = 1000  # calls, on each kind of server
LANES = 7


@pytest.fixture
def engine(any_server: EmbeddedServer, namespace: str) -> Iterator[Engine]:
    made = Engine(any_server.url, namespace)
    with contextlib.closing(made.redis):
        yield made


class Storm:
    """Publishes, claims and settles in rounds of six calls, and cancels most of them at some moment."""

    def __init__(self, engine: Engine, store: RedisStore) -> None:
        self.engine, self.store = engine, store
        self.rand = random.Random(11)  # noqa: S311 - moments to cancel at
        self.cancelled = self.published = 0
        self.held: list[ClaimedTask] = []

    async def round(self) -> None:
        calls = [self.publish(), self.publish(), self.claim(), self.claim(), self.settle(), self.settle()]
        self.rand.shuffle(calls)
        cut = self.rand.sample(calls, 4)
        ended = await asyncio.gather(*(self.maybe_cut(call, cut=call in cut) for call in calls))
        self.cancelled += sum(ended)

    async def maybe_cut(self, call: Any, *, cut: bool) -> bool:
        """Whether the call was cut short: by cancelling its task, or by a timeout around it."""
        if not cut:
            await call
            return False
        if self.rand.random() < 0.5:
            try:
                async with asyncio.timeout(self.rand.random() / 200):
                    await call
            except TimeoutError:
                return True
            return False
        task: asyncio.Task[None] = asyncio.create_task(call)
        for _ in range(self.rand.randrange(12)):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()
        return task.cancelled()

    async def publish(self) -> None:
        number, self.published = self.published, self.published + 1
        lane = Lane(f"d{number % LANES}")
        answer = await self.store.run(commands.publish(self.store.layout, self.engine.request(str(number), lane)))
        assert isinstance(answer, Published)
        assert answer.lanes == (lane.id,)
        assert not answer.duplicate

    async def turn(self, slots: int, ended: list[Settlement]) -> TurnAnswer:
        asked = self.engine.asking(slots, ended, worker=os.urandom(4).hex(), lease_ms=600_000)
        answer = await self.store.run(commands.turn(self.store.layout, self.engine.plan.fingerprint, asked))
        assert isinstance(answer, TurnAnswer)
        assert len(answer.settled) == len(ended)
        assert len(answer.tasks) <= slots
        return answer

    async def claim(self) -> None:
        answer = await self.turn(2, [])
        leases = [task.delivery_id.encode() + task.token for task in answer.tasks]
        assert all(self.engine.redis.zscore(self.engine.key("leases"), lease) for lease in leases)
        self.held += answer.tasks

    async def settle(self) -> None:
        mine, self.held = self.held[:2], self.held[2:]
        answer = await self.turn(0, settlements(mine, OK))
        assert set(answer.settled) <= {"completed"}

    def finish(self) -> None:
        """Publish what was cancelled, and complete everything with the tokens that Redis has."""
        for number in range(self.published):
            self.engine.publish(str(number), Lane(f"d{number % LANES}"))
        while self.engine.counters().get("open", 0):
            self.engine.claim(64)
            leases = self.engine.redis.zrange(self.engine.key("leases"), 0, 63)
            ended = [Settlement(lease[:38].decode(), lease[38:], OK) for lease in leases]
            assert set(self.engine.turn(0, ended).settled) == {"completed"}


def test_a_thousand_cancelled_calls_leave_every_reply_to_its_caller_and_no_connection(  # cases: F01 F02
    engine: Engine, any_server: EmbeddedServer
) -> None:
    async def go() -> int:
        async with Proxy(any_server.url) as proxy:
            proxy.delay = lambda: random.random() / 500  # noqa: S311
            store = await RedisStore.connect(Deployment(proxy.url, namespace=engine.layout.namespace))
            await store.bind(engine.plan)
            storm = Storm(engine, store)
            while storm.cancelled < CANCELLED:
                await storm.round()
            await asyncio.gather(*(storm.publish() for _ in range(50)))
            await until(asking(lambda: proxy.open), lambda count: count == 1)
            await store.aclose()
            await until(asking(lambda: proxy.open), lambda count: count == 0)
        storm.finish()
        return storm.published

    published = run(go())
    assert engine.counters()["completed"] == published
    assert faults(engine) == []
