"""Both type checkers report exactly the lines that `tests/typing` marks as wrong, and nothing else.

A mark says why in words, not the checker's code: codes differ between checkers and change with their versions.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAMPLES = sorted((ROOT / "tests" / "typing").glob("*.py"))
Lines = set[tuple[str, int]]  # file name, line from 1

pytestmark = pytest.mark.skipif(
    not (importlib.util.find_spec("mypy") and importlib.util.find_spec("pyright")),
    reason="mypy and pyright come with the check group",
)


def output(*command: str) -> str:
    """What a checker prints about the samples under the project's own configuration."""
    run = subprocess.run(
        [sys.executable, "-m", *command, *map(str, SAMPLES)],
        cwd=ROOT,
        env=os.environ | {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode in {0, 1}, run.stdout + run.stderr
    return run.stdout


def marked() -> Lines:
    return {
        (path.name, number)
        for path in SAMPLES
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if "  # E: " in line
    }


def test_mypy_reports_the_marked_lines_and_only_those() -> None:
    # A cache of its own: a check of the whole project may be running and holds a lock on the common one.
    lines = output("mypy", "--output=json", "--cache-dir=.mypy_cache/contract").splitlines()
    faults = [fault for fault in map(json.loads, lines) if fault["severity"] == "error"]
    assert {(Path(fault["file"]).name, fault["line"]) for fault in faults} == marked()


def test_pyright_reports_the_marked_lines_and_only_those() -> None:
    faults = json.loads(output("pyright", "--outputjson", "--pythonpath", sys.executable))["generalDiagnostics"]
    assert {(Path(fault["file"]).name, fault["range"]["start"]["line"] + 1) for fault in faults} == marked()


def test_there_is_something_to_report() -> None:
    assert len(marked()) > 10
