"""Which processes a test has started, however deep: they all have its environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

PROCESSES = Path("/proc")
MARK = "TEST_MARK"


def marked(environ: Mapping[str, str]) -> list[int]:
    """Ids of the processes whose environment has the mark of `environ`. Skips the test without /proc."""
    if not PROCESSES.is_dir():
        pytest.skip("needs /proc")
    mark = f"{MARK}={environ[MARK]}".encode()
    return [int(each.name) for each in PROCESSES.iterdir() if each.name.isdigit() and mark in _environment(each)]


def _environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""
