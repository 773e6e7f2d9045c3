"""The command line as its own process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from tests.support import HANG

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from pathlib import Path

SHOP = """
from pydantic import BaseModel
from hookline_sender import Plan

class OrderPaid(BaseModel):
    order_id: str

plan = Plan("shop")
order_paid = plan.event("order.paid", OrderPaid)
plan.webhook("billing", order_paid)
"""


@contextlib.contextmanager
def hookline(
    *arguments: str, environ: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Generator[subprocess.Popen[str]]:
    """`hookline ARGUMENTS`, with pipes as text. Of our environment it gets what is not hookline's, and `environ`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOOKLINE_", "REDIS_URL"))}
    environment = {**kept, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **(environ or {})}
    with subprocess.Popen(
        [sys.executable, "-m", "hookline_sender.cli", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=cwd,
    ) as process:
        limit = threading.Timer(HANG, process.kill)
        limit.start()
        try:
            yield process
        finally:
            limit.cancel()
            process.kill()


def finished(
    *arguments: str, environ: Mapping[str, str] | None = None, cwd: Path | None = None
) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a command that ends by itself."""
    with hookline(*arguments, environ=environ, cwd=cwd) as process:
        out, err = process.communicate()
        return process.returncode, out, err


def said(process: subprocess.Popen[str], words: str) -> str:
    """The next line on stderr that holds `words`; AssertionError with all that was said when there is none."""
    assert process.stderr is not None
    heard: list[str] = []
    for line in process.stderr:
        if words in line:
            return line
        heard.append(line)
    raise AssertionError("".join([f"never said: {words}\n", *heard]))
