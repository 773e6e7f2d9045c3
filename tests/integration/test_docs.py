"""The pages beside the README: their programs run, their commands and links exist."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from hookline_sender import Deployment, Plan, Worker
from hookline_sender.cli.app import app
from tests.support import eventually, free_port, http_get, http_post
from tests.support_cli import hookline, said

if TYPE_CHECKING:
    import subprocess

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
COMMANDS = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text(page), re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A reader's folder with the files of the README and of the quickstart."""
    quickstart = ROOT / "docs" / "quickstart.md"
    for block in (*blocks(ROOT / "README.md", "python"), *blocks(quickstart, "python")):
        (tmp_path / block.splitlines()[0].removeprefix("# ")).write_text(block, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text("".join(blocks(quickstart, "toml")), encoding="utf-8")
    return tmp_path


def answers(url: str, dev: subprocess.Popen[str]) -> bool:
    """Whether the service is up."""
    assert dev.poll() is None
    try:
        return http_get(f"{url}/docs").is_success
    except httpx.TransportError:
        return False


def test_the_service_of_the_quickstart_publishes_as_the_page_says(folder: Path) -> None:
    start, curl, *_ = blocks(ROOT / "docs" / "quickstart.md", "sh")
    port = str(free_port())
    command = shlex.split(start.replace("8001", port).replace("uvicorn", f"{sys.executable} -m uvicorn"))
    with hookline(*command[1:], cwd=folder, environ={"PYTHONDONTWRITEBYTECODE": "1"}) as dev:
        eventually(lambda: answers(f"http://127.0.0.1:{port}", dev))
        urls = re.findall(r"'(http[^']+)'", curl.replace("8001", port))
        calls = [http_post(url) for url in urls]
        said(dev, "✓ billing order.paid verified")
        dev.terminate()
        dev.communicate()
    assert [call.status_code for call in calls] == [200, 200, 500]
    assert [call.json() for call in calls[:2]] == [{"duplicate": False}, {"duplicate": True}]


def test_the_settings_in_code_run_below_the_command(folder: Path) -> None:
    (block,) = blocks(ROOT / "docs" / "going-to-production.md", "python")
    (folder / "production.py").write_text(block, encoding="utf-8")
    environ = {"HOOKLINE_REDIS_URL": "unix:///nowhere.invalid"}
    with hookline("worker", "production:worker", cwd=folder, environ=environ) as worker:
        said(worker, "waiting for Redis")
        assert worker.poll() is None


def test_the_settings_in_a_file_run_below_the_command(folder: Path) -> None:
    (block,) = blocks(ROOT / "docs" / "going-to-production.md", "toml")
    (folder / "deployment.toml").write_text(block, encoding="utf-8")
    environ = {"SHOP_REDIS_URL": "unix:///nowhere.invalid"}
    with hookline("worker", "shop:plan", "--deployment", "deployment.toml", cwd=folder, environ=environ) as worker:
        assert "BILLING_URL" in said(worker, "WARNING")
        said(worker, "waiting for Redis")
        assert worker.poll() is None


def test_the_worker_behind_a_proxy_is_made_as_the_page_says() -> None:
    (block,) = blocks(ROOT / "docs" / "egress.md", "python")
    made: dict[str, object] = {}
    exec(compile(block, "egress.md", "exec", dont_inherit=True), made)  # noqa: S102 - our own page
    assert isinstance(made["worker"], Worker)


def test_the_variables_of_the_page_about_egress_are_read() -> None:
    page = text(ROOT / "docs" / "egress.md")
    environ = dict(re.findall(r"`(HOOKLINE_[A-Z_]+)=\"?([^`\"]+)\"?`", page)) | {"REDIS_URL": "redis://redis.invalid"}
    found = Deployment.from_env(Plan("shop"), environ)
    assert (found.allow_addresses, found.destination_ports) == (("10.1.0.0/16", "fd00:1::/32"), frozenset({443, 8443}))
    assert (found.allow_loopback_http, found.unsafe_allow_private_addresses) == (True, True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere_and_commands_exist(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", text(page))
    assert [link for link in links if not (page.parent / link).exists()] == []
    assert set(re.findall(r"[`(/]hookline ([a-z]+)\b", text(page))) <= COMMANDS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_grants_that_a_page_shows_are_grants(page: Path) -> None:
    shown = re.findall(r"`((?:publish|register|cancel|recover):[^`]+)`", text(page))
    environ = {"REDIS_URL": "redis://redis.invalid", "HOOKLINE_GRANTS": " ".join(shown)}
    assert Deployment.from_env(Plan("shop"), environ).grants == set(shown)
