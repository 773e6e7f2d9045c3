"""A worker process for tests that kill, freeze, block or stop it.

    python -m tests.support_crash_worker URL NAMESPACE [WAY [CONCURRENCY]]

It says "working" once it works, and stops on SIGTERM as `hookline worker` does. WAY is how it sends; see WAYS.
LEASE and ORDERING in its environment are its lease in seconds and the order of its webhook.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

from hookline_sender import Worker
from hookline_sender.cli.serving import until_signalled
from hookline_sender.egress import AddressPolicy, HttpxTransport
from tests.support import HANG, python, run
from tests.support_crash import crash_deployment, crash_plan

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Generator, Mapping

    from hookline_sender.egress.transport import Headers, WireResponse


class Sends(HttpxTransport):
    """The default way, with something in front of it."""

    def __init__(self) -> None:
        super().__init__(AddressPolicy(allow_loopback_http=True))

    async def post(
        self,
        url: str,
        headers: Headers,
        body: bytes,
        *,
        deadline: float,
        destination: str,
        on_sent: Callable[[], None] | None = None,
    ) -> WireResponse:
        assert on_sent is not None
        await self.before(json.loads(body)["data"]["number"], on_sent)
        return await super().post(url, headers, body, deadline=deadline, destination=destination, on_sent=on_sent)

    async def before(self, number: int, on_sent: Callable[[], None]) -> None:
        """What happens to the delivery of parcel `number` before it is sent."""


class Blocks(Sends):
    """Blocks the whole event loop before the first request, once, until it is told a line."""

    blocked = False

    async def before(self, number: int, on_sent: Callable[[], None]) -> None:
        if not self.blocked:
            self.blocked = True
            sys.stdin.readline()


class Dies(Sends):
    """Parcel 0 kills the process."""

    async def before(self, number: int, on_sent: Callable[[], None]) -> None:
        if number == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class Overruns(Sends):
    """Parcel 0 never gets to its first byte, parcel 1 never past it; neither minds its deadline."""

    async def before(self, number: int, on_sent: Callable[[], None]) -> None:
        if number > 1:
            return
        if number == 1:
            on_sent()
        say(f"sending {number}")
        await asyncio.Event().wait()


WAYS: Mapping[str, Callable[[], Sends]] = {"plain": Sends, "blocks": Blocks, "dies": Dies, "overruns": Overruns}


@contextlib.contextmanager
def worker_process(
    url: str, namespace: str, environ: Mapping[str, str], way: str = "plain", *, concurrency: int = 100
) -> Generator[subprocess.Popen[str]]:
    """A worker that works; killed when the block ends."""
    arguments = ("-m", "tests.support_crash_worker", url, namespace, way, str(concurrency))
    with python(*arguments, environ=environ) as process:
        assert next_line(process) == "working"
        yield process


def say(line: str) -> None:
    """Tell the test."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def next_line(process: subprocess.Popen[str]) -> str:
    """What the process says next; it says little, and each line at once."""
    said = list[str]()

    def read() -> None:
        assert process.stdout is not None
        said.append(process.stdout.readline())

    reader = threading.Thread(target=read, daemon=True)  # a line may already be in the pipe's buffer, unseen by select
    reader.start()
    reader.join(HANG)
    assert said, f"nothing said in {HANG:g} s"
    return said[0].strip()


def stop(process: subprocess.Popen[str]) -> None:
    """Tell the worker to stop, and see it end well."""
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANG) == 0


async def _work(url: str, namespace: str, way: str = "plain", concurrency: str = "100") -> None:
    transport = WAYS[way]()
    deployment = crash_deployment(url, namespace, lease=float(os.environ.get("LEASE", "3")))
    plan = crash_plan(ordering=os.environ.get("ORDERING", "unordered"))
    worker = Worker(plan, deployment, concurrency=int(concurrency), transport=transport)
    try:
        async with worker.background():
            say("working")
            await asyncio.Event().wait()
    finally:
        await transport.aclose()


def main() -> None:
    """Work until SIGTERM, or until every test has given up."""
    run(until_signalled(_work(*sys.argv[1:])))


if __name__ == "__main__":
    main()
