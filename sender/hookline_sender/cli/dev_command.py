"""The user's own command below `hookline dev`: its terminal, its exit status, its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from typing import TYPE_CHECKING, Any, Final

from typer.core import TyperCommand

from hookline_shared.errors import HooklineError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

SEPARATOR: Final = "--"
PATIENCE: Final = 8.0  # seconds that a command has to end after a signal
NOT_FOUND: Final = 127  # as in a shell
# When the process that holds the other end of stdin is gone, however it went, the command has to go too.
_GUARD: Final = 'read -r _ || kill -TERM "$0"'


class WithCommand(TyperCommand):
    """A command whose arguments end at `--`; what follows is another command, as `context.obj`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - the context of whichever click
        """Split off the other command."""
        if SEPARATOR in args:
            place = args.index(SEPARATOR)
            ctx.obj, args = tuple(args[place + 1 :]), args[:place]
        elif len(words := [each for each in args if not each.startswith("-")]) > 1:
            plan = [words[0]] if ":" in words[0] else []  # else the plan is named elsewhere, and this is the command
            command = shlex.join([*plan, SEPARATOR, *args[args.index(words[len(plan)]) :]])
            ctx.fail(f"put {SEPARATOR} before the command: hookline dev {command}")
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ANN401 - same
        """Say so in the usage line."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


class CommandNotFound(HooklineError):
    """There is no such program, or it may not be run."""


class Command:
    """The running command. Made by `started`; it has our terminal and our standard streams."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    @contextlib.asynccontextmanager
    async def started(cls, words: Sequence[str], environ: Mapping[str, str]) -> AsyncGenerator[Command]:
        """Run it while the block runs. Raises CommandNotFound."""
        try:
            process = await asyncio.create_subprocess_exec(*words, env=environ)
        except OSError as error:
            raise CommandNotFound(f"cannot run {words[0]}: {error.strerror}") from None
        command = cls(process)
        async with _guarded(process.pid):
            try:
                yield command
            finally:
                await command.end(signal.SIGTERM)

    async def ended(self) -> int:
        """Its exit status as a shell has it: 128 and the signal's number when it was killed."""
        status = await self._process.wait()
        return status if status >= 0 else 128 - status

    async def end(self, number: int) -> None:
        """Tell it to end, as we were told, and ever more clearly when it takes too long. Safe to call twice."""
        knows = number == signal.SIGINT and _terminal_tells_everybody()
        for clearer in (None if knows else number, signal.SIGTERM, signal.SIGKILL):
            if clearer is not None:
                with contextlib.suppress(ProcessLookupError):
                    self._process.send_signal(clearer)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await self._process.wait()
                    return


@contextlib.asynccontextmanager
async def _guarded(pid: int) -> AsyncGenerator[None]:
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    guard = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", _GUARD, str(pid), stdin=pipe, stdout=null, stderr=null, start_new_session=True
    )
    try:
        yield
    finally:
        # A line, and not end-of-file: the process id may be another's by now.
        await guard.communicate(b"\n")


def _terminal_tells_everybody() -> bool:
    """Whether we run in a terminal's foreground: then Ctrl-C has reached the command too."""
    try:
        with open("/dev/tty", "rb", buffering=0) as terminal:  # noqa: PTH123 - a device, and stdin may be a file
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False
