"""Other Python processes that a command starts. All of them end with it, however it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING

from hookline_shared.errors import HooklineError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping

STOP_LIMIT = 5.0  # seconds
START_LIMIT = 20.0
LOG_LIMIT = 0.5
LOG_LINES = 20


class ChildFailed(HooklineError):
    """A process did not do its part; the text ends with what it said last."""


class Child:
    """One Python process. Made by `started`. It sees the end of this process as the end of its stdin."""

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, hear: Callable[[str], None] | None = None
    ) -> None:
        self.name, self.pid = name, process.pid
        self._process, self._hear = process, hear
        self._log = deque[str](maxlen=LOG_LINES)
        self._reading = asyncio.create_task(self._read_log())

    @classmethod
    @contextlib.asynccontextmanager
    async def started(
        cls, name: str, *arguments: str, environ: Mapping[str, str], hear: Callable[[str], None] | None = None
    ) -> AsyncGenerator[Child]:
        """Run `python ARGUMENTS` while the block runs. It gets `environ`, and of ours what is not hookline's.

        `hear` is given each line that it writes to stderr.
        """
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env={**_inherited(), **environ},
            start_new_session=True,  # Ctrl-C is for the command, which then ends the others
        )
        child = cls(name, process, hear)
        try:
            yield child
        finally:
            await child.stop()

    async def first_line(self) -> str:
        """The first line the process writes to stdout. Raises ChildFailed when it does not."""
        assert self._process.stdout is not None  # noqa: S101 - a pipe was asked for
        try:
            async with asyncio.timeout(START_LIMIT):
                line = await self._process.stdout.readline()
        except TimeoutError:
            line = b""
        if not line:
            raise await self.failure("did not start")
        return line.decode().strip()

    async def lines(self) -> AsyncIterator[str]:
        """The lines it writes to stdout from now on, until it ends."""
        assert self._process.stdout is not None  # noqa: S101 - a pipe was asked for
        async for line in self._process.stdout:
            yield line.decode(errors="replace").rstrip()

    async def ended(self) -> int:
        """The status it ended with, once it has."""
        return await self._process.wait()

    async def check(self) -> None:
        """Raise ChildFailed when the process has ended by itself."""
        if self._process.returncode is not None:
            raise await self.failure(f"ended with status {self._process.returncode}")

    async def failure(self, what: str) -> ChildFailed:
        """An error that says `what` happened to this process, with the end of its log."""
        with contextlib.suppress(TimeoutError):  # it may still run; otherwise its log and its end are soon known
            async with asyncio.timeout(LOG_LIMIT):
                await asyncio.gather(asyncio.shield(self._reading), self._process.wait())
        return ChildFailed("\n  ".join([f"{self.name} (process {self.pid}) {what}", *self._log]))

    async def kill(self) -> None:
        """SIGKILL: the process gets no chance to say anything."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def stop(self) -> None:
        """End the process gracefully, or by force after a while. Safe to call twice."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(STOP_LIMIT):
                await self._process.wait()
        except TimeoutError:
            await self.kill()
        await self._reading

    async def _read_log(self) -> None:
        assert self._process.stderr is not None  # noqa: S101 - a pipe was asked for
        async for line in self._process.stderr:
            text = line.decode(errors="replace").rstrip()
            self._log.append(text)
            if self._hear is not None:
                self._hear(text)


def end_with_parent() -> None:
    """For a Child's own code: let this process be killed as soon as the one that started it is gone."""
    threading.Thread(target=_end_with_stdin, daemon=True).start()


def _end_with_stdin() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def _inherited() -> dict[str, str]:
    """Our environment without the settings of somebody's own deployment; imports find what this process finds."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOOKLINE_", "REDIS_URL"))}
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
