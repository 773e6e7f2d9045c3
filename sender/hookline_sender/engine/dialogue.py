"""How the engine's commands are run on a server, without saying how bytes travel: decided here, performed elsewhere.

A method gives a flow: a generator that yields steps and is sent what came of them.

    flow ── Exchange(commands) ──▶ driver: one round trip ── replies ──▶ flow      (or the error it ended in)
         ── Pause(seconds) ──────▶ driver: waits ── [] ────────────────▶ flow ── result
         ── Drop() ──────────────▶ driver: disconnects ── [] ──────────▶ flow

The async and the sync store are two drivers of the same flows. Scripts that the server does not know are loaded,
commands whose reply was lost are repeated a few times if they are repeat-safe, and everything else becomes a
HooklineError.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from redis.exceptions import (
    AuthenticationError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from hookline_sender.engine import commands
from hookline_sender.engine.commands import Command, RevisionUnknown
from hookline_sender.engine.durability import QUESTIONS, Durability, shown
from hookline_sender.engine.layout import Layout
from hookline_sender.errors import NamespaceFull, RedisUnavailable
from hookline_sender.policy import encode_policy
from hookline_shared.errors import HooklineError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hookline_sender.deployment import Deployment
    from hookline_sender.plan import Plan

R = TypeVar("R")
Reply = Any
# Numbers go as text: hiredis crashes the process when a signal's handler raises while it writes an integer.
RawCommand = tuple[str | bytes, ...]

_log = logging.getLogger("hookline_sender")

LOST = (RedisError, OSError, TimeoutError)
"""What a driver throws into a flow when an exchange ended without all its replies."""

# Pauses before the repeats of a repeat-safe command, in seconds: a restart takes longer, a lost connection does not.
_REPEATS = (0.05, 0.2, 0.5)
_WAIT_MS = 2000  # how long a publish waits for min_replicas to confirm


@dataclass(frozen=True, slots=True)
class Exchange:
    """Send all commands, then read a reply to each; an error the server replied with is a reply."""

    commands: Sequence[RawCommand]


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait that long before going on."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the connection: after a failover the next one leads to another server."""


Step = Exchange | Pause | Drop
Flow = Generator[Step, "list[Reply]", R]


class Dialogue:
    """What one connection's user says to the server at its other end, and what it remembers of that server.

    `generation` tells the connection's generation: the server is looked at again when that changed.
    """

    def __init__(self, deployment: Deployment, *, check_interval: float, generation: Callable[[], int]) -> None:
        self.layout = Layout(deployment.namespace)
        self._deployment, self._check_interval, self._generation = deployment, check_interval, generation
        self._durability = Durability(deployment)
        self._judged: int | None = None  # the connection's generation whose server got a verdict
        self._sound_at: float | None = None  # when that verdict was good; None when it was not
        self.plan: Plan | None = None

    def bind(self, plan: Plan) -> Flow[None]:
        """Tie the namespace to the plan. Raises PlanMismatch."""
        self.plan = plan
        return self.run(self._bind_command(plan))

    def ready(self) -> Flow[None]:
        """Nothing while the last durability check holds, else another. Raises WeakDurability, RedisUnavailable."""
        sound = self._sound_at is not None and time.monotonic() < self._sound_at + self._check_interval
        if sound and self._judged == self._generation():
            return
        yield from self._attempted(self._check, repeat=True)

    def run(self, command: Command[R]) -> Flow[R]:
        """One command's value. Raises the command's own errors and RedisUnavailable."""
        (result,) = yield from self.run_many([command])
        if isinstance(result, HooklineError):
            raise result
        return result

    def run_many(self, batch: Sequence[Command[R]]) -> Flow[list[R | HooklineError]]:
        """The commands' values or errors in their order, from one pipeline. Raises RedisUnavailable, WeakDurability."""
        if self._durability.nearly_full and any(_publishes(command) for command in batch):
            return (yield from self._without_publishing(batch))
        safe = all(command.repeat_safe for command in batch)
        replies = yield from self._attempted(lambda: self._exchange_verified(batch), repeat=safe)
        results: list[R | HooklineError] = []
        for command, reply in zip(batch, replies, strict=True):
            results.append(self._parsed(command, reply))
        if self.plan is not None and any(isinstance(result, RevisionUnknown) for result in results):
            return (yield from self._again_when_bound(batch, results, self.plan))
        return results

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
            may_replace=self._deployment.allows("bind:"),
            max_records=self._deployment.max_records,
            retention_ms=self._deployment.retention_ms,
            dead_retention_ms=self._deployment.dead_retention_ms,
            max_per_destination=self._deployment.most_per_destination,
            max_dead=self._deployment.most_dead,
        )

    def _check(self) -> Flow[None]:
        replies = yield Exchange(QUESTIONS)
        self._judged, self._sound_at = self._generation(), None
        try:
            self._durability.judge(replies)
        finally:
            if self._durability.on_replica:
                yield Drop()
        self._sound_at = time.monotonic()

    def _exchange_verified(self, batch: Sequence[Command[Any]]) -> Flow[list[Reply]]:
        # Since the caller's ready() the connection may have gone, and with it the server that was checked. One that was
        # found weak is still told outcomes: whoever publishes or claims has asked ready() before.
        if self._judged != self._generation():
            yield from self._check()
        return (yield from self._exchange(batch))

    def _exchange(self, batch: Sequence[Command[Any]]) -> Flow[list[Reply]]:
        replies: list[Reply] = [None] * len(batch)
        waiting, loads, confirmed = list(range(len(batch))), list[RawCommand](), list[Reply]()
        for call in (_evalsha, _evalsha, _eval):
            calls = [call(batch[i]) for i in waiting]
            answers = yield Exchange([*loads, *calls, *self._confirmation(batch)])
            confirmed = answers[len(loads) + len(calls) :]
            for i, answer in zip(waiting, answers[len(loads) :], strict=False):
                replies[i] = answer
                if isinstance(answer, ReadOnlyError):  # a master no more
                    yield Drop()
                    raise answer
            # The server refused these before doing anything, so repeating is safe for every command. If somebody
            # flushed its scripts between loading and calling, the third call brings its own.
            waiting = [i for i in waiting if isinstance(replies[i], NoScriptError)]
            if not waiting:
                break
            sources = {batch[i].script.name: batch[i].script.source for i in waiting}
            loads = [("SCRIPT", "LOAD", source) for source in sources.values()]
        self._check_confirmed(confirmed)
        return replies

    def _check_confirmed(self, confirmed: list[Reply]) -> None:
        if any(isinstance(count, ResponseError) or count < self._deployment.min_replicas for count in confirmed):
            raise RedisUnavailable(
                f"Redis at {shown(self._deployment.redis_url)} has it, but not all of {self._deployment.min_replicas} "
                "replicas confirmed in time (min_replicas): repeat with the same id, which is always safe"
            )

    def _confirmation(self, batch: Sequence[Command[Any]]) -> list[RawCommand]:
        wanted = self._deployment.min_replicas
        if wanted and any(_publishes(command) for command in batch):
            return [("WAIT", str(wanted), str(_WAIT_MS))]
        return []

    def _attempted(self, act: Callable[[], Flow[R]], *, repeat: bool) -> Flow[R]:
        pauses = iter(_REPEATS if repeat else ())
        while True:
            try:
                return (yield from act())
            except LOST as failure:
                pause = next(pauses, None)
                if pause is None:
                    raise self._unavailable(failure) from failure
            yield Pause(pause)

    def _unavailable(self, failure: Exception) -> HooklineError:
        what, check = "cannot be reached", "that it runs (redis-server --appendonly yes --appendfsync always) and"
        if isinstance(failure, AuthenticationError) or type(failure) is ResponseError:  # it runs, and said no
            what, check = "refuses the connection", "user, password and number of the database in"
        return RedisUnavailable(
            f"Redis at {shown(self._deployment.redis_url)} {what} ({type(failure).__name__}): check {check} "
            "HOOKLINE_REDIS_URL; publishing again with the same id is always safe"
        )

    def _parsed(self, command: Command[R], reply: Reply) -> R | HooklineError:
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

    def _without_publishing(self, batch: Sequence[Command[R]]) -> Flow[list[R | HooklineError]]:
        rest = [command for command in batch if not _publishes(command)]
        results = iter((yield from self.run_many(rest)) if rest else [])
        return [self._no_room() if _publishes(command) else next(results) for command in batch]

    def _again_when_bound(
        self, batch: Sequence[Command[R]], results: list[R | HooklineError], plan: Plan
    ) -> Flow[list[R | HooklineError]]:
        (bound,) = yield from self.run_many([self._bind_command(plan)])
        if isinstance(bound, HooklineError):
            return results
        behind = [i for i, result in enumerate(results) if isinstance(result, RevisionUnknown)]
        replies = yield from self._attempted(lambda: self._exchange([batch[i] for i in behind]), repeat=True)
        for i, reply in zip(behind, replies, strict=True):
            results[i] = self._parsed(batch[i], reply)
        return results


def _publishes(command: Command[Any]) -> bool:
    return command.script.name == "publish"


def _evalsha(command: Command[Any]) -> RawCommand:
    return ("EVALSHA", command.script.sha, *_operands(command))


def _eval(command: Command[Any]) -> RawCommand:
    return ("EVAL", command.script.source, *_operands(command))


def _operands(command: Command[Any]) -> RawCommand:
    args = (b"%d" % arg if isinstance(arg, int) else arg for arg in command.args)
    return (str(len(command.keys)), *command.keys, *args)
