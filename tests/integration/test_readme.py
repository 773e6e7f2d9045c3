"""The README tells the truth: its code blocks run as they stand."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support import eventually, free_port

if TYPE_CHECKING:
    from hookline_sender.embedded import EmbeddedServer

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The README's code blocks of one language."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def code_lines(block: str) -> list[str]:
    """Its lines of code: no blank lines and no comments."""
    return [line for line in block.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def run_script(folder: Path, url: str, output: Path) -> subprocess.Popen[bytes]:
    """The shell block of the section "Run", on this test's server and port."""
    port = str(free_port())
    script = next(block for block in blocks("sh") if "hookline worker" in block)
    script = script.replace("redis://127.0.0.1:6379/0", url).replace("8000", port)
    wait = f"until (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null; do kill -0 $! || exit 1; done\n"
    script = script.replace("hookline worker shop:plan &", wait + "hookline worker shop:plan &") + "\nwait\n"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HOOKLINE_", "REDIS_"))}
    with output.open("wb") as out:
        return subprocess.Popen(
            ["bash", "-eu", "-c", script],  # noqa: S607 - the reader's bash, from PATH
            cwd=folder,
            env={**inherited, "PATH": path, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def test_the_sender_and_the_receiver_of_the_readme_deliver_once(redis_server: EmbeddedServer, tmp_path: Path) -> None:
    for block in blocks("python"):
        name = block.splitlines()[0].removeprefix("# ")
        (tmp_path / name).write_text(block, encoding="utf-8")
    output = tmp_path / "output.txt"
    # A copy of the URL with a database of its own: the README's plan has the namespace "shop".
    process = run_script(tmp_path, redis_server.url.replace("db=0", "db=7"), output)
    try:
        eventually(lambda: b"paid: 42" in output.read_bytes() or process.poll() is not None, limit=60)
        assert process.poll() is None, output.read_text()
        assert output.read_bytes().count(b"paid: 42") == 1
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(20)
    assert output.read_bytes().count(b"paid: 42") == 1, output.read_text()


def test_sending_and_receiving_take_at_most_fifteen_lines_each() -> None:
    assert [len(code_lines(block)) <= 15 for block in blocks("python")] == [True, True]


def test_the_two_commands_of_the_readme_are_targets_of_the_makefile() -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {"demo", "test"} <= set(targets)


def test_the_readme_stays_short_enough_to_be_read() -> None:
    assert len(README.splitlines()) <= 200
