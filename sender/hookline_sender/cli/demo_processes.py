"""The demo's other processes: a receiver and workers. All of them end with the demo, however that ends."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import sys
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx

from hookline_sender.cli.demo_evidence import Counts, Replay
from hookline_shared.errors import HooklineError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

STOP_LIMIT = 5.0  # seconds
START_LIMIT = 20.0
LOG_LIMIT = 0.5
LOG_LINES = 20


class DemoFailed(HooklineError):
    """The demo could not be carried through; its text ends with what the process in question said last."""


class Child:
    """One Python process. Made by `started`. It sees the end of this process as the end of its stdin."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name, self.pid = name, process.pid
        self._process = process
        self._log = deque[str](maxlen=LOG_LINES)
        self._reading = asyncio.create_task(self._read_log())

    @classmethod
    @contextlib.asynccontextmanager
    async def started(cls, name: str, *arguments: str, environ: Mapping[str, str]) -> AsyncGenerator[Child]:
        """Run `python ARGUMENTS` while the block runs. It gets `environ`, and of ours what is not hookline's."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env={**_inherited(), **environ},
            start_new_session=True,  # Ctrl-C is for the demo, which then ends the others
        )
        child = cls(name, process)
        try:
            yield child
        finally:
            await child.stop()

    async def first_line(self) -> str:
        """The first line the process writes to stdout. Raises DemoFailed when it does not."""
        assert self._process.stdout is not None  # noqa: S101 - a pipe was asked for
        try:
            async with asyncio.timeout(START_LIMIT):
                line = await self._process.stdout.readline()
        except TimeoutError:
            line = b""
        if not line:
            raise await self.failure("did not start")
        return line.decode().strip()

    async def check(self) -> None:
        """Raise DemoFailed when the process has ended by itself."""
        if self._process.returncode is not None:
            raise await self.failure(f"ended with status {self._process.returncode}")

    async def failure(self, what: str) -> DemoFailed:
        """An error that says `what` happened to this process, with the end of its log."""
        with contextlib.suppress(TimeoutError):  # it may still run; otherwise its log and its end are soon known
            async with asyncio.timeout(LOG_LIMIT):
                await asyncio.gather(asyncio.shield(self._reading), self._process.wait())
        return DemoFailed("\n  ".join([f"{self.name} (process {self.pid}) {what}", *self._log]))

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
            self._log.append(line.decode(errors="replace").rstrip())


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The demo's receiver, asked over HTTP."""

    url: str
    client: httpx.AsyncClient

    async def look(self) -> tuple[int, dict[str, Counts]]:
        """How many handlers wait to be released, and what each endpoint did so far."""
        answer = (await self.client.get(f"{self.url}/demo/counts")).json()
        return answer["waiting"], {name: Counts.from_json(counts) for name, counts in answer["endpoints"].items()}

    async def release(self) -> None:
        """Let waiting handlers go on."""
        (await self.client.post(f"{self.url}/demo/release")).raise_for_status()

    async def replay(self, destination: str) -> Replay:
        """Post the captured request to `destination` again, the same headers and the same bytes."""
        captured: dict[str, Any] = (await self.client.get(f"{self.url}/demo/captured")).json()
        request = httpx.Request(
            "POST",
            f"{self.url}/hooks/{destination}",
            headers=[(name, value) for name, value in captured["headers"]],
            content=base64.b64decode(captured["body"]),
        )
        before = (await self.look())[1][destination].handled
        answer = await self.client.send(request)
        after = (await self.look())[1][destination].handled
        return Replay(answer.status_code, answer.headers.get("x-axiom-replayed") == "true", before != after)


def _inherited() -> dict[str, str]:
    """Our environment without the settings of somebody's own deployment; imports find what this process finds."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOOKLINE_", "REDIS_URL"))}
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
