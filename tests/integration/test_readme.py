"""The README tells the truth: its code blocks run as they stand."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support import HANG, eventually, free_port

if TYPE_CHECKING:
    from collections.abc import Generator

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The README's code blocks of one language."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def shell(words: str) -> str:
    """The one shell block with these words."""
    (block,) = (each for each in blocks("sh") if words in each)
    return block


def code_lines(block: str) -> list[str]:
    """Its lines of code: no blank lines and no comments."""
    return [line for line in block.splitlines() if line.strip() and not line.lstrip().startswith("#")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A reader's folder, with the files that the README has them write."""
    for block in blocks("python"):
        (tmp_path / block.splitlines()[0].removeprefix("# ")).write_text(block, encoding="utf-8")
    return tmp_path


@contextlib.contextmanager
def terminal(script: str, folder: Path) -> Generator[tuple[subprocess.Popen[bytes], Path]]:
    """A terminal in which `script` is typed, and a file with all that it shows; ended as by its window's closing."""
    output = folder / f"terminal-{os.urandom(4).hex()}.txt"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HOOKLINE_", "REDIS_"))}
    with output.open("wb") as out:
        process = subprocess.Popen(
            ["bash", "-eu", "-c", script],  # noqa: S607 - the reader's bash, from PATH
            cwd=folder,
            env={**inherited, "PATH": path, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process, output
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(HANG)


def shows(output: Path, words: str, *running: subprocess.Popen[bytes]) -> None:
    """Wait until a terminal shows the words; fail with all that it shows when a process ends before."""
    eventually(lambda: words in output.read_text() or any(each.poll() is not None for each in running))
    assert words in output.read_text(), output.read_text()


def test_the_first_delivery_looks_as_the_readme_shows_it(folder: Path) -> None:
    with terminal(shell("-- python shop.py"), folder) as (dev, output):
        status = dev.wait(HANG)
    (sample,) = blocks("text")
    first, *payload = sample.splitlines()
    assert status == 0, output.read_text()
    for line in (first.partition("  ")[0], *payload):
        assert line in output.read_text()


def test_the_three_terminals_of_the_readme_deliver_once(folder: Path) -> None:
    port = str(free_port())
    first, second, third = (shell(words).replace("8000", port) for words in ("> shop.env", "uvicorn", "same id again"))
    with terminal(first, folder) as (dev, log):
        shows(log, "Run your services in other terminals", dev)
        with terminal(second, folder) as (receiver, output):
            shows(output, "Uvicorn running", receiver, dev)
            with terminal(third, folder) as (sender, _):
                assert sender.wait(HANG) == 0
            shows(output, "paid: 42", receiver, dev)
    assert output.read_text().count("paid: 42") == 1, output.read_text()


def test_what_the_readme_installs_are_the_extras_that_exist() -> None:
    installed = re.search(r"HOOKLINE\}\[([a-z,]+)\]", shell("pip install"))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert installed is not None
    assert set(installed[1].split(",")) <= extras.keys()


def test_sending_and_receiving_take_at_most_fifteen_lines_each() -> None:
    assert [len(code_lines(block)) <= 15 for block in blocks("python")] == [True, True]


def test_the_two_commands_of_the_readme_are_targets_of_the_makefile() -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {"demo", "test"} <= set(targets)


def test_the_readme_stays_short_enough_to_be_read() -> None:
    assert len(README.splitlines()) <= 200


def test_the_readmes_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert [link for link in links if not (ROOT / link).exists()] == []
