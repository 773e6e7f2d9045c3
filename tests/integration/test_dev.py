"""`hookline dev` as its users start it: real processes, and none of them left."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hookline_sender import SigningKey
from tests.support import HANG, closed_port, eventually, python, serve
from tests.support_cli import SHOP, finished, hookline, said
from tests.support_processes import MARK, marked

if TYPE_CHECKING:
    from collections.abc import Iterator

MODULE = f"""{SHOP}
import asyncio, os, sys, time
from hookline_sender import Publisher

async def main() -> None:
    async with Publisher(plan) as publisher:
        await publisher.publish(order_paid, OrderPaid(order_id="42"), id="order-42-paid")

if __name__ == "__main__":
    asyncio.run(main())
    sys.exit(int(sys.argv[1]) if sys.argv[1:] else 0)
"""
ONCE = """
import sys, time
try:
    print("up", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(1)  # for a second one
    print("ended once")
    sys.exit(5)
"""
# A terminal with hookline in it, whose user presses Ctrl-C. Its own process, because ours has threads when it forks.
TERMINAL = """
import os, pty, sys
process, terminal = pty.fork()
if process == 0:
    os.execv(sys.executable, [sys.executable, "-m", "hookline_sender.cli", *sys.argv[1:]])
shown, pressed = b"", False
try:
    while chunk := os.read(terminal, 4096):
        shown += chunk
        if not pressed and b"\\nup\\r\\n" in shown:
            pressed = bool(os.write(terminal, b"\\x03"))
except OSError:  # how a terminal says that its last process is gone
    pass
sys.stdout.buffer.write(shown)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
"""
WAIT = "import sys, time; print('up', flush=True); time.sleep(60)"


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with the shop, and below it one for what is temporary; short enough for a socket."""
    directory = Path(tempfile.mkdtemp(prefix="dev-"))
    (directory / "t").mkdir()
    (directory / "shop.py").write_text(MODULE, encoding="utf-8")
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def environ(place: Path) -> dict[str, str]:
    return {"TMPDIR": str(place / "t"), MARK: secrets.token_hex(8), "PYTHONDONTWRITEBYTECODE": "1"}


def nothing_is_left(place: Path, environ: dict[str, str]) -> bool:
    return not marked(environ) and not list((place / "t").iterdir())


@pytest.mark.parametrize("status", [0, 7])
def test_a_commands_events_are_delivered_and_its_status_is_the_exit_status(
    place: Path, environ: dict[str, str], status: int
) -> None:
    command = (sys.executable, "shop.py", str(status))
    code, out, err = finished("dev", "shop:plan", "--", *command, environ=environ, cwd=place)
    assert (code, out) == (status, ""), err
    assert "✓ billing order.paid verified, answered 204, attempt 1" in err
    assert '"order_id": "42"' in err
    assert nothing_is_left(place, environ)


def test_without_a_command_stdout_is_an_environment_for_other_terminals(place: Path, environ: dict[str, str]) -> None:
    with hookline("dev", "shop:plan", environ=environ, cwd=place) as dev:
        said(dev, "Run your services in other terminals")
        assert dev.stdout is not None
        lines = "".join(dev.stdout.readline() for _ in range(7))
        script = f"{lines}exec {shlex.quote(sys.executable)} shop.py"
        path = os.pathsep.join(filter(None, sys.path))
        subprocess.run(["/bin/sh", "-c", script], cwd=place, env={**os.environ, "PYTHONPATH": path}, check=True)
        assert "✓ billing" in said(dev, "verified")
        dev.send_signal(signal.SIGINT)
        out, err = dev.communicate()
    assert (dev.returncode, out) == (0, ""), err
    assert nothing_is_left(place, environ)


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 1), (signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_whatever_ends_it_ends_the_command_and_leaves_nothing_behind(
    place: Path, environ: dict[str, str], number: signal.Signals, status: int
) -> None:
    with hookline("dev", "shop:plan", "--", sys.executable, "-c", WAIT, environ=environ, cwd=place) as dev:
        assert dev.stdout is not None
        assert dev.stdout.readline() == "up\n"
        dev.send_signal(number)
        dev.communicate()
    # The command is Python: its KeyboardInterrupt is a status, as its own or as the signal's.
    assert dev.returncode in {status, 128 + number}
    eventually(lambda: nothing_is_left(place, environ))


def test_a_webhook_whose_url_is_set_is_delivered_there(place: Path, environ: dict[str, str]) -> None:
    async def refusing(scope: dict[str, str], _: object, send: object) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 401, "headers": []})  # type: ignore[operator]
            await send({"type": "http.response.body"})  # type: ignore[operator]

    with serve(refusing) as url:
        own = {
            "HOOKLINE_WEBHOOK_BILLING_URL": f"{url}/hooks",
            "HOOKLINE_WEBHOOK_BILLING_KEY": SigningKey.generate().reveal(),
        }
        command = ("--", sys.executable, "shop.py")
        status, _, err = finished("dev", "shop:plan", *command, environ={**environ, **own}, cwd=place)
    assert "left alone: HOOKLINE_WEBHOOK_BILLING_URL is set" in err
    assert "billing answered 401: refused: the receiver has another key" in err
    assert (status, "verified" in err) == (0, False)


def test_the_wait_for_a_delivery_that_fails_can_be_interrupted(place: Path, environ: dict[str, str]) -> None:
    own = {
        "HOOKLINE_WEBHOOK_BILLING_URL": f"http://127.0.0.1:{closed_port()}/hooks",
        "HOOKLINE_WEBHOOK_BILLING_KEY": SigningKey.generate().reveal(),
    }
    command = ("dev", "shop:plan", "--", sys.executable, "shop.py", "3")
    with hookline(*command, environ={**environ, **own}, cwd=place) as dev:
        said(dev, "waiting for what is still to be delivered")
        assert "billing: no answer" in said(dev, "will be tried again")
        dev.send_signal(signal.SIGINT)
        dev.communicate()
    assert dev.returncode == 3
    assert nothing_is_left(place, environ)


def test_a_process_that_ends_by_itself_ends_everything_and_is_named(place: Path, environ: dict[str, str]) -> None:
    with hookline("dev", "shop:plan", "--", sys.executable, "-c", WAIT, environ=environ, cwd=place) as dev:
        assert dev.stdout is not None
        assert dev.stdout.readline() == "up\n"
        (receiver,) = (
            pid for pid in marked(environ) if b"hookline_receiver.dev" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
        os.kill(receiver, signal.SIGKILL)
        _, err = dev.communicate()
    assert dev.returncode == 1
    assert f"the receiver (process {receiver}) ended with status -9" in err
    assert nothing_is_left(place, environ)


def test_a_command_that_does_not_exist_is_named_and_127(place: Path, environ: dict[str, str]) -> None:
    status, _, err = finished("dev", "shop:plan", "--", "pyhton", "shop.py", environ=environ, cwd=place)
    assert status == 127
    assert "cannot run pyhton" in err


def test_the_plan_may_be_named_by_the_project(place: Path, environ: dict[str, str]) -> None:
    (place / "pyproject.toml").write_text('[tool.hookline]\nplan = "shop:plan"\n', encoding="utf-8")
    status, _, err = finished("dev", "--", sys.executable, "shop.py", environ=environ, cwd=place)
    assert (status, "✓ billing" in err) == (0, True), err


def test_a_command_without_its_dashes_is_no_plan(place: Path, environ: dict[str, str]) -> None:
    for words, meant in (
        (["shop:plan", "python", "a.py"], "shop:plan -- python a.py"),
        (["python", "a.py"], "-- python a.py"),
    ):
        status, _, err = finished("dev", *words, environ=environ, cwd=place)
        assert (status, f"hookline dev {meant}" in err) == (2, True)


def test_without_the_receivers_extra_it_says_what_to_install(place: Path, environ: dict[str, str]) -> None:
    code = (
        "import sys, importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'uvicorn' else find(name, *more)\n"
        f"sys.argv = ['hookline', 'dev', 'shop:plan']; sys.stderr = sys.stdout; sys.path.insert(0, {str(place)!r})\n"
        "from hookline_sender.cli import main; main()"
    )
    with python("-c", code, environ=environ) as process:
        out, _ = process.communicate(timeout=HANG)
    assert process.returncode == 1
    assert "pip install 'hookline[sender,receiver,dev]'" in out


def test_ctrl_c_in_a_terminal_reaches_the_command_once(place: Path, environ: dict[str, str]) -> None:
    with python(
        "-c", TERMINAL, "dev", "shop:plan", "--", sys.executable, "-c", ONCE, environ=environ, cwd=place
    ) as one:
        shown, _ = one.communicate(timeout=HANG)
    assert (one.returncode, "ended once" in shown) == (5, True), shown
    assert nothing_is_left(place, environ)
