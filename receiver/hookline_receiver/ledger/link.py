"""The way to one Redis server: scripts run whole or not at all, and no caller can leave a reply behind.

A command runs in a task of its own. A caller that is cancelled or loses patience only stops waiting: the task still
reads its reply, so the next user of the connection never gets it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, TypeVar

from redis import exceptions as refused

from hookline_receiver.errors import LedgerUnavailable, WeakDurability
from hookline_receiver.ledger.pipeline import Pipeline
from hookline_shared.durability import durability_faults, durability_fix, version_faults

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from hookline_shared.durability import Durability

R = TypeVar("R")
log = logging.getLogger("hookline.receiver")

PATIENCE: Final = 2.0  # seconds a caller waits for a step: with an 8 s handler it stays below a sender's 10 s timeout
PAUSES: Final = (0.05, 0.2)  # seconds between the tries of one step
WEAK_RECHECK: Final = 1.0  # seconds; a repaired server is believed soon

_PASSING = (refused.ConnectionError, refused.TimeoutError, refused.ReadOnlyError, OSError)
_SETTINGS = ("appendonly", "appendfsync", "no-appendfsync-on-rewrite", "maxmemory-policy")


class StoreFull(LedgerUnavailable):
    """The server has no memory for another write."""


@dataclass(frozen=True, slots=True)
class Script:
    """One Lua script with its prelude, and the SHA-1 that names it on the server."""

    source: str
    sha1: str

    @classmethod
    def load(cls, package: str, name: str) -> Script:
        """The script in the package's `scripts/<name>.lua`."""
        folder = resources.files(package) / "scripts"
        head, _, rest = (folder / f"{name}.lua").read_text("utf-8").partition("\n")
        prelude = (folder / "prelude.lua").read_text("utf-8")
        source = f"{head}\n{prelude}{rest}"
        return cls(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


class RedisLink:
    """The connection to one server, made at the first use and closed by `aclose`. For one event loop."""

    def __init__(self, url: str, durability: Durability, check_interval: float) -> None:
        self._pipeline = Pipeline(url)
        self._durability, self._check_interval = durability, check_interval
        self._tasks: set[asyncio.Task[Any]] = set()
        self._checking: asyncio.Task[None] | None = None
        self._checked_at = -check_interval
        self._faults: tuple[str, ...] = ()
        self._judged, self._run_id = 0, ""  # connections made when the server was last checked, and the process it was
        self.openings = 0  # of the store, for this loop
        self.loop = asyncio.get_running_loop()

    async def run(self, script: Script, *arguments: str | bytes | int) -> Any:  # noqa: ANN401 - each script its own
        """The script's answer; `arguments` are the number of keys, the keys and the rest.

        Repeats the script after a failure that may pass, so only for scripts that may run twice.
        Raises LedgerUnavailable, StoreFull.
        """
        until = self.loop.time() + PATIENCE
        return await self._patiently(self._persist(script, arguments, until))

    async def run_once(self, script: Script, *arguments: str | bytes | int) -> Any:  # noqa: ANN401 - each script its own
        """Like `run`, for a script that may not run twice: a failure is the caller's."""
        until = self.loop.time() + PATIENCE
        return await self._patiently(self._mapped(lambda: self._once(script, arguments, until)))

    async def verify(self, *, now: bool = False) -> None:
        """Check the server at a new connection, when the last check is older than the interval, or `now`.

        Raises WeakDurability, LedgerUnavailable.
        """
        if self._durability == "unsafe_volatile":
            return
        interval = WEAK_RECHECK if self._faults else self._check_interval
        new = self._pipeline.connections != self._judged
        if now or new or time.monotonic() - self._checked_at >= interval:
            if self._checking is None or self._checking.done():
                self._checking = self._start(self._check())
            await self._patiently(self._checking)
        if self._faults:
            raise _weak(self._faults)

    async def aclose(self) -> None:
        """Let running commands end, within a caller's patience, and close the connection."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=PATIENCE)
        for task in self._tasks:
            task.cancel()
        await self._pipeline.aclose()

    async def _patiently(self, work: Coroutine[Any, Any, R] | asyncio.Task[R]) -> R:
        task = work if isinstance(work, asyncio.Task) else self._start(work)
        await asyncio.wait({task}, timeout=PATIENCE)  # neither a cancellation nor the time limit ends the task
        if not task.done():
            raise _unreachable(f"no answer within {PATIENCE:g} s")
        return task.result()

    def _start(self, work: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen: a caller that left does not want a warning about it

    async def _persist(self, script: Script, arguments: tuple[str | bytes | int, ...], until: float) -> Any:  # noqa: ANN401
        async def tries() -> Any:  # noqa: ANN401
            for pause in PAUSES:
                try:
                    return await self._once(script, arguments, until)
                except _PASSING:
                    await asyncio.sleep(pause)
            return await self._once(script, arguments, until)

        return await self._mapped(tries)

    async def _once(self, script: Script, arguments: tuple[str | bytes | int, ...], until: float) -> Any:  # noqa: ANN401
        try:
            return await self._pipeline.send("EVALSHA", script.sha1, *arguments, until=until)
        except refused.NoScriptError:  # a restart or a failover emptied the cache; nothing ran
            return await self._pipeline.send("EVAL", script.source, *arguments, until=until)

    async def _check(self) -> None:
        config, info = await self._mapped(self._settings)
        asserted = (*_replica(info), *version_faults(info))
        faults = durability_faults(config, info) if self._durability == "verified" else asserted
        if faults and not self._faults:
            log.error("the ledger refuses: %s", _weak(faults))
        self._notice_restart(str(info.get("run_id", "")))
        self._checked_at, self._faults, self._judged = time.monotonic(), faults, self._pipeline.connections
        if _replica(info):
            await self._pipeline.drop()

    def _notice_restart(self, run_id: str) -> None:
        if self._run_id not in {"", run_id}:
            log.warning(
                "the ledger's Redis is another process than before (restart or failover): "
                "a failover can have lost rows, and a repeat of their deliveries is handled again"
            )
        self._run_id = run_id

    async def _settings(self) -> tuple[dict[str, object], dict[str, object]]:
        until = self.loop.time() + PATIENCE
        info, words = b"", list[bytes]()
        with contextlib.suppress(refused.NoPermissionError):  # what is closed on a managed server counts as unknown
            info = await self._pipeline.send("INFO", until=until)
        with contextlib.suppress(refused.ResponseError):
            words = await self._pipeline.send("CONFIG", "GET", *_SETTINGS, until=until)
        config = [_text(word) for word in words]
        return dict(zip(config[::2], config[1::2], strict=False)), _info(info)

    async def _mapped(self, command: Callable[[], Coroutine[Any, Any, R]]) -> R:
        try:
            return await command()
        except refused.OutOfMemoryError:
            raise StoreFull from None
        except (refused.RedisError, OSError) as error:
            raise _unreachable(type(error).__name__) from error


def _text(word: bytes) -> str:
    return word.decode("utf-8", "replace")


def _info(answer: bytes) -> dict[str, object]:
    fields = (line.partition(":") for line in _text(answer).splitlines() if not line.startswith("#"))
    return {name: value for name, _, value in fields}


def _replica(info: dict[str, object]) -> tuple[str, ...]:
    role = info.get("role", "master")
    return () if role == "master" else (f"role={role} (need master)",)


def _unreachable(why: str) -> LedgerUnavailable:
    return LedgerUnavailable(
        f"the ledger's Redis cannot be used ({why}): check that it runs, and its URL with user and password; "
        "deliveries are answered 503 until it can"
    )


def _weak(faults: tuple[str, ...]) -> WeakDurability:
    message = (
        f"the ledger's Redis may forget handled deliveries: {', '.join(faults)}. Fix:\n{durability_fix(faults)}\n"
        'Managed and sure? durability="asserted", or HOOKLINE_DURABILITY=asserted. Development? "unsafe_volatile"'
    )
    return WeakDurability(message, faults)
