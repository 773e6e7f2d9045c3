"""`hookline dev`: everything a plan needs, on this machine, for as long as a command runs.

    command ── publishes ──▶ embedded server ──▶ worker ──▶ receiver (its own process) ──▶ this terminal
                                                      └───▶ a webhook whose URL is set already

All of it ends together: with the command, on SIGINT or SIGTERM, or when one part ends by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hookline_sender.cli.dev_command import NOT_FOUND, Command, CommandNotFound
from hookline_sender.cli.dev_environment import Setup
from hookline_sender.cli.dev_report import Report
from hookline_sender.cli.processes import Child
from hookline_sender.embedded import EmbeddedServer
from hookline_sender.engine.layout import Layout
from hookline_sender.engine.link import Link
from hookline_shared.errors import HooklineError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from hookline_sender.cli.loading import Target
    from hookline_sender.plan import Plan

NEEDED: Final = ("uvicorn", "starlette")
PAUSE: Final = 0.05  # seconds
LOOKS: Final = 200  # so 10 s that deliveries may still take when the command has ended


@dataclass(frozen=True, slots=True)
class Stage:
    """What is running. `stopped` has the signal that asks for the end."""

    report: Report
    stopped: asyncio.Future[int]
    children: tuple[Child, ...]

    async def until(self, work: Coroutine[Any, Any, int]) -> int | None:
        """The result of `work`; None when a signal came first. Raises ChildFailed when a process ended by itself."""
        task = asyncio.create_task(work)
        ends = {child: asyncio.create_task(child.ended()) for child in self.children}
        try:
            await asyncio.wait({task, self.stopped, *ends.values()}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            for child, end in ends.items():
                if end.done() and not self.stopped.done():
                    raise await child.failure(f"ended with status {end.result()}")
            return None
        finally:
            for each in (task, *ends.values()):
                each.cancel()
            await asyncio.gather(task, *ends.values(), return_exceptions=True)


async def run_dev(target: Target, plan: Plan, words: Sequence[str]) -> int:
    """Run until everything is over; the exit status. Leaves no process and no directory.

    Raises HooklineError when something cannot be started or ends by itself.
    """
    _check_extras()
    report = Report()
    async with contextlib.AsyncExitStack() as stack:
        stopped = _signalled(stack)
        # A setting of our own makes it a server of our own, whatever the environment names.
        server = stack.enter_context(EmbeddedServer.start(extra={"loglevel": "warning"}))
        setup = Setup.of(plan, os.environ, server.url)
        receiver, url = await _receiver(stack, setup, report)
        variables = setup.variables(url)
        worker = await stack.enter_async_context(
            Child.started(
                "the worker",
                *("-m", "hookline_sender.cli.dev_worker", target.text, str(target.folder), *setup.ours),
                environ=_for_worker(variables),
                hear=lambda line: report.log("worker", line),
            )
        )
        stage = Stage(report, stopped, (worker,) if receiver is None else (worker, receiver))
        report.started(setup, variables, words)
        if not words:
            await stage.until(_forever())
            return 0
        return await _run(stage, words, variables)


async def _run(stage: Stage, words: Sequence[str], variables: Mapping[str, str]) -> int:
    try:
        async with Command.started(words, {**os.environ, **variables}) as command:
            status = await stage.until(command.ended())
            if status is None:
                await command.end(stage.stopped.result())
                return await command.ended()
    except CommandNotFound as error:
        stage.report.log("hookline", str(error))
        return NOT_FOUND
    await _last_deliveries(stage, variables)
    return status


async def _last_deliveries(stage: Stage, variables: Mapping[str, str]) -> None:
    server = Link(variables["HOOKLINE_REDIS_URL"])
    try:
        await _wait_for_deliveries(stage, _Unfinished(server, variables["HOOKLINE_NAMESPACE"]))
    finally:
        await server.aclose()


async def _wait_for_deliveries(stage: Stage, unfinished: _Unfinished) -> None:
    if await unfinished.count():
        stage.report.waiting()
        if left := await stage.until(unfinished.last()):
            stage.report.undelivered(left)


@dataclass(frozen=True, slots=True)
class _Unfinished:
    """Tasks of a namespace that have not ended."""

    server: Link
    namespace: str

    async def count(self) -> int:
        """How many there are."""
        (reply,) = await self.server.exchange([("HGET", Layout(self.namespace).key("cnt"), "open")])
        return int(reply) if isinstance(reply, bytes) else 0

    async def last(self) -> int:
        """How many there are when there are none, or after a while."""
        left = await self.count()
        for _ in range(LOOKS):
            if not left:
                break
            await asyncio.sleep(PAUSE)  # nothing announces a task's end to others than its worker
            left = await self.count()
        return left


async def _receiver(stack: contextlib.AsyncExitStack, setup: Setup, report: Report) -> tuple[Child | None, str]:
    """The receivers' process and its address; None when no webhook needs one."""
    if not setup.ours:
        return None, ""
    child = await stack.enter_async_context(
        Child.started(
            "the receiver",
            "-m",
            "hookline_receiver.dev",
            environ=setup.for_receiver(),
            hear=lambda line: report.log("receiver", line),
        )
    )
    url = f"http://127.0.0.1:{await child.first_line()}"
    telling = asyncio.create_task(_tell(child, report))
    stack.push_async_callback(_finished, child, telling)
    return child, url


async def _tell(child: Child, report: Report) -> None:
    async for line in child.lines():
        report.delivery(line)


async def _finished(child: Child, telling: asyncio.Task[None]) -> None:
    """End the receiver and show what it told last."""
    await child.stop()
    await telling


def _for_worker(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("HOOKLINE_")} | {**variables}


def _signalled(stack: contextlib.AsyncExitStack) -> asyncio.Future[int]:
    """A future that gets the first signal's number. The second ends this process, and the others with it."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()

    def stop(number: int) -> None:
        if stopped.done():
            os._exit(128 + number)
        stopped.set_result(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
        stack.callback(loop.remove_signal_handler, number)
    return stopped


async def _forever() -> int:
    never: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    return await never


def _check_extras() -> None:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise HooklineError(
            f"hookline dev needs {' and '.join(missing)}, install with: pip install 'hookline[sender,receiver,dev]'"
        )
