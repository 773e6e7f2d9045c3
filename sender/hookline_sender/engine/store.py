"""Runs the engine's commands on a Redis server, asynchronously: the driver of `dialogue`'s flows on one connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar, assert_never

from hookline_sender.engine.dialogue import LOST, Dialogue, Drop, Exchange, Flow, Pause, Reply, Step
from hookline_sender.engine.durability import warn_when_volatile
from hookline_sender.engine.link import Link
from hookline_sender.engine.wake import WakeUps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookline_sender.deployment import Deployment
    from hookline_sender.engine.commands import Command
    from hookline_sender.plan import Plan
    from hookline_shared.errors import HooklineError

R = TypeVar("R")


class RedisStore:
    """The engine on one Redis server. Make it with `connect`; safe to use from many tasks of one event loop."""

    def __init__(self, deployment: Deployment, *, check_interval: float = 30.0) -> None:
        self._link = Link(deployment.redis_url)
        self._dialogue = Dialogue(deployment, check_interval=check_interval, generation=lambda: self._link.generation)
        self.layout = self._dialogue.layout
        self._checking = asyncio.Lock()
        self._wake_ups = WakeUps(deployment.redis_url, self.layout.wake)

    @classmethod
    async def connect(
        cls, deployment: Deployment, plan: Plan | None = None, *, check_interval: float = 30.0
    ) -> RedisStore:
        """Open a store on a server that was found durable, and bind the plan if there is one.

        check_interval: seconds between looks at the server's settings.

        Raises:
            WeakDurability: the server may lose acknowledged events.
            RedisUnavailable: the server cannot be reached. PlanMismatch: as `bind` does.
        """
        store = cls(deployment, check_interval=check_interval)
        warn_when_volatile(deployment)
        try:
            await store.ready()
            if plan is not None:
                await store.bind(plan)
        except BaseException:
            await store.aclose()
            raise
        return store

    async def bind(self, plan: Plan) -> None:
        """Tie the namespace to the plan; again with the same plan it changes nothing. Raises PlanMismatch."""
        await self._drive(self._dialogue.bind(plan))

    async def ready(self) -> None:
        """Return at once while the last durability check holds, else check again.

        Raises:
            WeakDurability: the server may lose acknowledged events (any more): nothing may be published or claimed.
            RedisUnavailable: it cannot be asked.
        """
        async with self._checking:
            await self._drive(self._dialogue.ready())

    async def run(self, command: Command[R]) -> R:
        """Run one command and parse its answer. Raises the command's own errors and RedisUnavailable."""
        return await self._drive(self._dialogue.run(command))

    async def run_many(self, batch: Sequence[Command[R]]) -> list[R | HooklineError]:
        """Run commands in one pipeline; results in their order, each a value or the error it stands for.

        Raises:
            RedisUnavailable: the connection failed; a repeat-safe batch was repeated before.
            WeakDurability: it came back to a server that may lose acknowledged events. Nothing was sent to it.
        """
        return await self._drive(self._dialogue.run_many(batch))

    async def wait_wake(self, timeout: float) -> None:  # noqa: ASYNC109 - passing is no error
        """Return when a publisher made work for idle workers, or after `timeout` seconds; also while Redis is away."""
        await self._wake_ups.wait(timeout)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._wake_ups.aclose()
        await self._link.aclose()

    async def _drive(self, flow: Flow[R]) -> R:
        try:
            step = next(flow)
            while True:
                try:
                    replies = await self._perform(step)
                except LOST as failure:
                    step = flow.throw(failure)
                else:
                    step = flow.send(replies)
        except StopIteration as end:
            result: R = end.value
            return result
        finally:
            flow.close()

    async def _perform(self, step: Step) -> list[Reply]:
        match step:
            case Exchange():
                return await self._link.exchange(step.commands)
            case Pause():
                await asyncio.sleep(step.seconds)
            case Drop():
                await self._link.drop()
            case _:
                assert_never(step)
        return []


__all__ = ["RedisStore"]
