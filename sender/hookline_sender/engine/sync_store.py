"""Runs the engine's commands on a Redis server, blocking: the driver of `dialogue`'s flows on a connection per thread.

process ─┬─ thread ── connection, and what is known of the server at its other end
         └─ thread ── …
fork ────── the child begins with no connection: those it inherited are its parent's, and stay untouched
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, TypeVar, assert_never

from hookline_sender.engine.dialogue import LOST, Dialogue, Drop, Exchange, Flow, Pause, Reply, Step
from hookline_sender.engine.durability import warn_when_volatile
from hookline_sender.engine.sync_link import SyncLink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookline_sender.deployment import Deployment
    from hookline_sender.engine.commands import Command
    from hookline_sender.plan import Plan
    from hookline_shared.errors import HooklineError

R = TypeVar("R")


class SyncStore:
    """The engine on one Redis server. Make it with `connect`; any thread may use it, and any forked process."""

    def __init__(self, deployment: Deployment, *, check_interval: float = 30.0) -> None:
        self._deployment, self._check_interval = deployment, check_interval
        self._plan: Plan | None = None
        self._processes: dict[int, _Process] = {}  # by process id: a fork makes no entry of its own

    @classmethod
    def connect(cls, deployment: Deployment, plan: Plan | None = None, *, check_interval: float = 30.0) -> SyncStore:
        """Open a store on a server that was found durable, and bind the plan if there is one.

        check_interval: seconds between looks at the server's settings.

        Raises:
            WeakDurability: the server may lose acknowledged events.
            RedisUnavailable: the server cannot be reached. PlanMismatch: as `bind` does.
        """
        store = cls(deployment, check_interval=check_interval)
        warn_when_volatile(deployment)
        try:
            store.ready()
            if plan is not None:
                store.bind(plan)
        except BaseException:
            store.close()
            raise
        return store

    def bind(self, plan: Plan) -> None:
        """Tie the namespace to the plan; again with the same plan it changes nothing. Raises PlanMismatch."""
        self._plan = plan
        talk = self._talk()
        talk.drive(talk.dialogue.bind(plan))

    def ready(self) -> None:
        """Return at once while this thread's last durability check holds, else check again.

        Raises:
            WeakDurability: the server may lose acknowledged events (any more): nothing may be published.
            RedisUnavailable: it cannot be asked.
        """
        talk = self._talk()
        talk.drive(talk.dialogue.ready())

    def run(self, command: Command[R]) -> R:
        """Run one command and parse its answer. Raises the command's own errors and RedisUnavailable."""
        talk = self._talk()
        return talk.drive(talk.dialogue.run(command))

    def run_many(self, batch: Sequence[Command[R]]) -> list[R | HooklineError]:
        """Run commands in one pipeline; results in their order, each a value or the error it stands for.

        Raises:
            RedisUnavailable: the connection failed; a repeat-safe batch was repeated before.
            WeakDurability: it came back to a server that may lose acknowledged events. Nothing was sent to it.
        """
        talk = self._talk()
        return talk.drive(talk.dialogue.run_many(batch))

    def close(self) -> None:
        """Close the connections of all threads of this process, each after what is in flight on it."""
        self._process().close()

    def _process(self) -> _Process:
        mine = os.getpid()
        process = self._processes.get(mine)
        if process is None:
            process = self._processes.setdefault(mine, _Process())  # one of several threads wins
            for other in self._processes.keys() - {mine}:
                self._processes.pop(other, None)
        return process

    def _talk(self) -> _Talk:
        process = self._process()
        talk: _Talk | None = getattr(process.local, "talk", None)
        if talk is None:
            talk = process.local.talk = _Talk(self._deployment, self._check_interval, self._plan)
            process.add(talk.link)
        return talk


class _Process:
    """The connections of one process. Its locks are its own: inherited ones may be held by threads that are not."""

    def __init__(self) -> None:
        self.local = threading.local()
        self._lock = threading.Lock()
        self._links = weakref.WeakSet[SyncLink]()  # a thread's own reference is the only one: it ends with the thread
        self._closed = False

    def add(self, link: SyncLink) -> None:
        with self._lock:
            self._links.add(link)
            late = self._closed
        if late:
            link.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            links = list(self._links)
        for link in links:
            link.close()


class _Talk:
    """One thread's connection and dialogue."""

    def __init__(self, deployment: Deployment, check_interval: float, plan: Plan | None) -> None:
        link = self.link = SyncLink(deployment.redis_url)
        self.dialogue = Dialogue(deployment, check_interval=check_interval, generation=lambda: link.generation)
        self.dialogue.plan = plan

    def drive(self, flow: Flow[R]) -> R:
        """Perform the flow's steps until it ends."""
        try:
            step = next(flow)
            while True:
                try:
                    replies = self._perform(step)
                except LOST as failure:
                    step = flow.throw(failure)
                else:
                    step = flow.send(replies)
        except StopIteration as end:
            result: R = end.value
            return result
        finally:
            flow.close()

    def _perform(self, step: Step) -> list[Reply]:
        match step:
            case Exchange():
                return self.link.exchange(step.commands)
            case Pause():
                time.sleep(step.seconds)
            case Drop():
                self.link.drop()
            case _:
                assert_never(step)
        return []


__all__ = ["SyncStore"]
