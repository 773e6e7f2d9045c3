"""The demo as a newcomer starts it. Each run is a few seconds, most of them the lease of a killed worker."""

from __future__ import annotations

import json
import secrets
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hookline_sender.cli.processes import Child, ChildFailed
from tests.support import HANG, eventually, python, run
from tests.support_cli import finished, hookline, said
from tests.support_processes import MARK, marked

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def place() -> Iterator[Path]:
    """A temporary directory for the demo, with a path short enough for a socket."""
    directory = Path(tempfile.mkdtemp(prefix="demo-"))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def environ(place: Path) -> dict[str, str]:
    return {"TMPDIR": str(place), MARK: secrets.token_hex(8)}


def test_the_demo_keeps_its_promises_and_leaves_nothing_behind(place: Path, environ: dict[str, str]) -> None:
    status, out, err = finished("demo", "--events", "40", environ=environ)
    assert status == 0, out + err
    assert "All 7 claims hold." in out
    assert "published = handled exactly once" in out
    assert "40/40" in err
    assert "120/120" in err
    assert list(place.iterdir()) == []
    assert marked(environ) == []


def test_the_result_can_be_read_by_a_program(environ: dict[str, str]) -> None:
    status, out, err = finished("demo", "--events", "20", "--json", environ=environ)
    result = json.loads(out)
    assert (status, result["holds"]) == (0, True), err
    assert {row["destination"]: row["delivered"] + row["dead"] for row in result["destinations"]} == {
        "warehouse": 20,
        "billing": 20,
        "partner": 20,
    }


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_an_interrupted_demo_leaves_nothing_behind(
    place: Path, environ: dict[str, str], number: signal.Signals, status: int
) -> None:
    with hookline("demo", "--events", "40", environ=environ) as demo:
        said(demo, "takes over")
        demo.send_signal(number)
        demo.communicate()
        assert demo.returncode == status
    eventually(lambda: not marked(environ) and not list(place.iterdir()))


def test_a_process_that_ends_by_itself_is_reported_with_its_last_words() -> None:
    async def go() -> None:
        async with Child.started("a child", "-c", "import sys; sys.exit('no more ink')", environ={}) as child:
            await child.first_line()

    with pytest.raises(ChildFailed, match=r"(?s)a child \(process \d+\) did not start.*no more ink"):
        run(go())


def test_a_child_sees_nothing_of_somebodys_own_deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOKLINE_REDIS_URL", "redis://production.invalid")
    monkeypatch.setenv("REDIS_URL", "redis://production.invalid")
    code = "import os; print('production' in str(os.environ), os.environ['OWN'])"

    async def go() -> str:
        async with Child.started("a child", "-c", code, environ={"OWN": "set"}) as child:
            return await child.first_line()

    assert run(go()) == "False set"


def test_without_the_receivers_extra_the_demo_says_what_to_install(environ: dict[str, str]) -> None:
    code = (
        "import sys, importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'uvicorn' else find(name, *more)\n"
        "sys.argv = ['hookline', 'demo']; sys.stderr = sys.stdout\n"
        "from hookline_sender.cli import main; main()"
    )
    with python("-c", code, environ=environ) as process:
        out, _ = process.communicate(timeout=HANG)
    assert process.returncode == 1
    assert "pip install 'hookline[sender,receiver,dev]'" in out
