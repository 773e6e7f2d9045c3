"""Runs the engine's commands on a Redis server, asynchronously.

What can go wrong on the way is handled once, here: scripts that the server does not know are loaded, commands whose
reply was lost are repeated a few times if they are repeat-safe, and everything else becomes a HooklineError.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, TypeVar

from redis.exceptions import NoScriptError, OutOfMemoryError, RedisError, ResponseError

from hookline_sender.engine import commands
from hookline_sender.engine.commands import Command, RevisionUnknown
from hookline_sender.engine.durability import Durability, shown, warn_when_volatile
from hookline_sender.engine.layout import Layout
from hookline_sender.engine.link import Link, RawCommand
from hookline_sender.engine.wake import WakeUps
from hookline_sender.errors import NamespaceFull, RedisUnavailable
from hookline_sender.policy import encode_policy
from hookline_shared.errors import HooklineError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from hookline_sender.deployment import Deployment
    from hookline_sender.plan import Plan

R = TypeVar("R")

_log = logging.getLogger("hookline_sender")

# Pauses before the repeats of a repeat-safe command, in seconds: a restart takes longer, a lost connection does not.
_REPEATS = (0.05, 0.2, 0.5)
_WAIT_MS = 2000  # how long a publish waits for min_replicas to confirm
_LOADS = 3  # times that scripts are loaded for one batch: somebody may flush them again in between


class RedisStore:
    """The engine on one Redis server. Make it with `connect`; safe to use from many tasks of one event loop."""

    def __init__(self, deployment: Deployment, *, check_interval: float = 30.0) -> None:
        self.layout = Layout(deployment.namespace)
        self._deployment = deployment
        self._link = Link(deployment.redis_url)
        self._durability = Durability(deployment)
        self._check_interval = check_interval
        self._checked: tuple[float, int] | None = None  # when, and the connection's generation
        self._checking = asyncio.Lock()
        self._wake_ups = WakeUps(deployment.redis_url, self.layout.wake)
        self._plan: Plan | None = None

    @classmethod
    async def connect(cls, deployment: Deployment, *, check_interval: float = 30.0) -> RedisStore:
        """Open a store on a server that was found durable. `check_interval` in seconds.

        Raises:
            WeakDurability: the server may lose acknowledged events.
            RedisUnavailable: the server cannot be reached.
        """
        store = cls(deployment, check_interval=check_interval)
        warn_when_volatile(deployment)
        try:
            await store.ready()
        except BaseException:
            await store.aclose()
            raise
        return store

    async def bind(self, plan: Plan) -> None:
        """Tie the namespace to the plan; again with the same plan it changes nothing. Raises PlanMismatch."""
        self._plan = plan
        await self.run(self._bind_command(plan))

    async def ready(self) -> None:
        """Return at once while the last durability check holds, else check again.

        Raises:
            WeakDurability: the server may lose acknowledged events (any more): nothing may be published or claimed.
            RedisUnavailable: it cannot be asked.
        """
        async with self._checking:
            if self._checked is not None:
                at, generation = self._checked
                if generation == self._link.generation and time.monotonic() < at + self._check_interval:
                    return
            await self._attempted(self._check, repeat=True)

    async def run(self, command: Command[R]) -> R:
        """Run one command and parse its answer. Raises the command's own errors and RedisUnavailable."""
        (result,) = await self.run_many([command])
        if isinstance(result, HooklineError):
            raise result
        return result

    async def run_many(self, batch: Sequence[Command[R]]) -> list[R | HooklineError]:
        """Run commands in one pipeline; results in their order, each a value or the error it stands for.

        Raises:
            RedisUnavailable: the connection failed; a repeat-safe batch was repeated before.
            WeakDurability: it came back to a server that may lose acknowledged events. Nothing was sent to it.
        """
        if self._durability.nearly_full and any(_publishes(command) for command in batch):
            return await self._without_publishing(batch)
        safe = all(command.repeat_safe for command in batch)
        replies = await self._attempted(lambda: self._exchange_verified(batch), repeat=safe)
        results: list[R | HooklineError] = []
        for command, reply in zip(batch, replies, strict=True):
            results.append(self._parsed(command, reply))
        if self._plan is not None and any(isinstance(result, RevisionUnknown) for result in results):
            return await self._again_when_bound(batch, results, self._plan)
        return results

    async def wait_wake(self, timeout: float) -> None:  # noqa: ASYNC109 - passing is no error
        """Return when a publisher made work for idle workers, or after `timeout` seconds; also while Redis is away."""
        await self._wake_ups.wait(timeout)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._wake_ups.aclose()
        await self._link.aclose()

    def _bind_command(self, plan: Plan) -> Command[None]:
        webhooks = plan.webhooks.values()
        return commands.bind(
            self.layout,
            fingerprint=plan.fingerprint,
            revision=plan.revision,
            bindings=[
                (each.name, f"{each.kind}:{each.policy.ordering}", encode_policy(each.policy)) for each in webhooks
            ],
            events=list(plan.events),
            max_records=self._deployment.max_records,
            retention_ms=self._deployment.retention_ms,
            dead_retention_ms=self._deployment.dead_retention_ms,
        )

    async def _check(self) -> None:
        self._checked = None
        await self._durability.check(self._link)
        self._checked = (time.monotonic(), self._link.generation)

    async def _exchange_verified(self, batch: Sequence[Command[Any]]) -> list[Any]:
        # Between the caller's ready() and now the connection may have gone, and with it the server that was checked.
        async with self._checking:
            if self._checked is not None and self._checked[1] != self._link.generation:
                await self._check()
        return await self._exchange(batch)

    async def _exchange(self, batch: Sequence[Command[Any]]) -> list[Any]:
        replies: list[Any] = [None] * len(batch)
        waiting, loads, confirmed = list(range(len(batch))), list[RawCommand](), list[Any]()
        for _ in range(1 + _LOADS):
            calls = [_evalsha(batch[i]) for i in waiting]
            answers = await self._link.exchange([*loads, *calls, *self._confirmation(batch)])
            confirmed = answers[len(loads) + len(calls) :]
            for i, answer in zip(waiting, answers[len(loads) :], strict=False):
                replies[i] = answer
            # The server refused these before doing anything, so repeating is safe for every command.
            waiting = [i for i in waiting if isinstance(replies[i], NoScriptError)]
            if not waiting:
                break
            sources = {batch[i].script.name: batch[i].script.source for i in waiting}
            loads = [("SCRIPT", "LOAD", source) for source in sources.values()]
        self._check_confirmed(confirmed)
        return replies

    def _check_confirmed(self, confirmed: list[Any]) -> None:
        if any(isinstance(count, ResponseError) or count < self._deployment.min_replicas for count in confirmed):
            raise RedisUnavailable(
                f"Redis at {shown(self._deployment.redis_url)} has it, but not all of {self._deployment.min_replicas} "
                "replicas confirmed in time (min_replicas): repeat with the same id, which is always safe"
            )

    def _confirmation(self, batch: Sequence[Command[Any]]) -> list[RawCommand]:
        wanted = self._deployment.min_replicas
        if wanted and any(_publishes(command) for command in batch):
            return [("WAIT", wanted, _WAIT_MS)]
        return []

    async def _attempted(self, act: Callable[[], Awaitable[R]], *, repeat: bool) -> R:
        pauses = iter(_REPEATS if repeat else ())
        while True:
            try:
                return await act()
            except (RedisError, OSError, TimeoutError) as failure:
                pause = next(pauses, None)
                if pause is None:
                    raise self._unavailable(failure) from failure
            await asyncio.sleep(pause)

    def _unavailable(self, failure: Exception) -> HooklineError:
        return RedisUnavailable(
            f"Redis at {shown(self._deployment.redis_url)} cannot be reached ({type(failure).__name__}): "
            "check that it runs and HOOKLINE_REDIS_URL; publishing again with the same id is always safe"
        )

    def _parsed(self, command: Command[R], reply: object) -> R | HooklineError:
        if isinstance(reply, ResponseError):
            return self._refused(reply)
        try:
            return command.parse(reply)
        except HooklineError as error:
            return error

    def _refused(self, reply: ResponseError) -> HooklineError:
        where = shown(self._deployment.redis_url)
        text = str(reply)
        if isinstance(reply, OutOfMemoryError) or text.startswith(("OOM", "command not allowed when used memory")):
            return self._no_room()
        _log.error("Redis at %s refused a command: %s", where, text.split(":", 1)[0][:200])
        word = text.split(" ", 1)[0]
        return RedisUnavailable(f"Redis at {where} cannot run the command now ({word}): see the server's log")

    def _no_room(self) -> NamespaceFull:
        where = shown(self._deployment.redis_url)
        return NamespaceFull(f"Redis at {where} is out of memory or nearly: raise maxmemory or start more workers")

    async def _without_publishing(self, batch: Sequence[Command[R]]) -> list[R | HooklineError]:
        rest = [command for command in batch if not _publishes(command)]
        results = iter(await self.run_many(rest) if rest else [])
        return [self._no_room() if _publishes(command) else next(results) for command in batch]

    async def _again_when_bound(
        self, batch: Sequence[Command[R]], results: list[R | HooklineError], plan: Plan
    ) -> list[R | HooklineError]:
        (bound,) = await self.run_many([self._bind_command(plan)])
        if isinstance(bound, HooklineError):
            return results
        behind = [i for i, result in enumerate(results) if isinstance(result, RevisionUnknown)]
        replies = await self._attempted(lambda: self._exchange([batch[i] for i in behind]), repeat=True)
        for i, reply in zip(behind, replies, strict=True):
            results[i] = self._parsed(batch[i], reply)
        return results


def _publishes(command: Command[Any]) -> bool:
    return command.script.name == "publish"


def _evalsha(command: Command[Any]) -> RawCommand:
    return ("EVALSHA", command.script.sha, len(command.keys), *command.keys, *command.args)


__all__ = ["RedisStore"]
