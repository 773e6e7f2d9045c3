"""The command as users start it: its own process, in the directory of their module."""

from __future__ import annotations

import asyncio
import runpy
import signal
import threading
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hookline_sender import Deployment, Plan, Publisher, SigningKey
from hookline_sender.cli import EXTRA, NEEDED
from hookline_sender.engine import commands
from hookline_sender.engine.records import State
from hookline_sender.engine.store import RedisStore
from tests.support import HANG, python, run, serve
from tests.support_cli import SHOP, finished, hookline, said

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hookline_sender import EventType

MODULE = f"""{SHOP}
from hookline_sender import Worker
worker = Worker(plan)
silent = Plan("silent")
"""


@dataclass
class Slow:
    """A destination that answers when it is told to."""

    arrived: threading.Event = field(default_factory=threading.Event)
    answer: threading.Event = field(default_factory=threading.Event)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        await receive()
        self.arrived.set()
        await asyncio.to_thread(self.answer.wait, HANG)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})


@dataclass
class Shop:
    """A plan in a file of its own, where it runs, and its slow destination."""

    folder: Path
    environ: dict[str, str]
    destination: Slow

    def __post_init__(self) -> None:
        found = runpy.run_path(str(self.folder / "shop.py"))
        self.plan: Plan = found["plan"]
        self.event: EventType[Any] = found["order_paid"]
        self.deployment = Deployment.from_env(self.plan, self.environ)

    def publish(self) -> str:
        async def go() -> str:
            async with Publisher(self.plan, self.deployment) as publisher:
                made = await publisher.publish(self.event, self.event.model(order_id="42"), id="42")
                return made.receipts[0].delivery_id

        return run(go())

    def state(self, delivery_id: str) -> State:
        async def go() -> State:
            store = await RedisStore.connect(self.deployment)
            try:
                return (await store.run(commands.inspect(store.layout, delivery_id))).state
            finally:
                await store.aclose()

        return run(go())


def without(shop: Shop, word: str) -> dict[str, str]:
    return {name: value for name, value in shop.environ.items() if not name.endswith(word)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(MODULE, encoding="utf-8")
    return tmp_path


@pytest.fixture
def shop(folder: Path, redis_url: str, namespace: str) -> Iterator[Shop]:
    destination = Slow()
    with serve(destination) as url:
        environ = {
            "HOOKLINE_REDIS_URL": redis_url,
            "HOOKLINE_NAMESPACE": namespace,
            "HOOKLINE_GRANTS": "publish:*",
            "HOOKLINE_ALLOW_LOOPBACK_HTTP": "1",
            "HOOKLINE_WEBHOOK_BILLING_URL": f"{url}/hooks/billing",
            "HOOKLINE_WEBHOOK_BILLING_KEY": SigningKey.generate().reveal(),
        }
        yield Shop(folder, environ, destination)
        destination.answer.set()


@pytest.mark.parametrize(("number", "transport"), [(signal.SIGTERM, "httpx"), (signal.SIGINT, "fast")])
def test_a_stopped_worker_finishes_what_it_is_delivering_and_exits_with_0(
    shop: Shop, number: signal.Signals, transport: str
) -> None:
    delivery = shop.publish()
    options = ("--concurrency", "5", "--transport", transport)
    with hookline("worker", "shop:plan", *options, environ=shop.environ, cwd=shop.folder) as worker:
        said(worker, f"5 at once over {transport}")
        assert shop.destination.arrived.wait(HANG)
        worker.send_signal(number)
        said(worker, "finishing the attempts in progress")
        shop.destination.answer.set()
        assert worker.wait(HANG) == 0
    assert shop.state(delivery) is State.COMPLETED


def test_a_second_signal_ends_a_worker_at_once_and_leaves_the_task_to_others(shop: Shop) -> None:
    delivery = shop.publish()
    environ = {**shop.environ, "HOOKLINE_PLAN": "shop:plan"}
    with hookline("worker", environ=environ, cwd=shop.folder) as worker:
        assert shop.destination.arrived.wait(HANG)
        worker.send_signal(signal.SIGTERM)
        said(worker, "finishing the attempts in progress")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(HANG) == 128 + signal.SIGTERM
    assert shop.state(delivery) is State.RUNNING


def test_a_worker_logs_to_stderr_and_nothing_to_stdout(shop: Shop) -> None:
    with hookline("worker", "shop:worker", environ=shop.environ, cwd=shop.folder) as worker:
        shop.publish()
        assert shop.destination.arrived.wait(HANG)
        shop.destination.answer.set()
        worker.send_signal(signal.SIGTERM)
        out, err = worker.communicate()
    assert out == ""
    assert err.endswith("stopped\n")
    assert shop.environ["HOOKLINE_WEBHOOK_BILLING_KEY"] not in err


def test_a_worker_written_in_code_says_what_its_attempts_would_miss(shop: Shop) -> None:
    with hookline("worker", "shop:worker", environ=without(shop, "KEY"), cwd=shop.folder) as worker:
        assert "HOOKLINE_WEBHOOK_BILLING_KEY is not set" in said(worker, "WARNING")
        worker.send_signal(signal.SIGTERM)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "which plan?"),
        (["shop"], "not of the form module:attribute"),
        (["nowhere:plan"], 'there is no module "nowhere"'),
        (["shop:silent"], "add plan.webhook("),
        (["shop:worker", "--concurrency", "5"], "leave out --concurrency"),
        (["shop:worker", "--transport", "fast"], "leave out --transport"),
        (["shop:worker", "--deployment", "deployment.toml"], "leave out --deployment"),
    ],
)
def test_a_wrong_call_is_answered_with_one_sentence_and_2(folder: Path, arguments: list[str], sentence: str) -> None:
    status, out, err = finished("worker", *arguments, cwd=folder)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("hookline: ")
    assert sentence in err


def test_a_module_that_fails_to_import_shows_where(folder: Path) -> None:
    (folder / "broken.py").write_text("import no_such_dependency\n", encoding="utf-8")
    status, _, err = finished("worker", "broken:plan", cwd=folder)
    assert status == 2
    assert 'broken.py", line 1' in err
    assert "No module named 'no_such_dependency'" in err


def test_a_worker_that_cannot_start_says_why_and_exits_with_1(folder: Path) -> None:
    status, _, err = finished("worker", "shop:plan", cwd=folder)
    assert status == 1
    assert "HOOKLINE_REDIS_URL" in err
    assert "Traceback" not in err


def test_keygen_prints_one_usable_key_and_nothing_else() -> None:
    status, out, err = finished("keygen")
    assert (status, err, out.count("\n")) == (0, "", 1)
    assert SigningKey.parse(out.strip()).reveal() == out.strip()
    assert out.startswith("hex:")


@pytest.mark.parametrize("scheme", ["axiom", "standard-webhooks", "svix"])
def test_keygen_writes_a_key_as_its_scheme_reads_it(scheme: str) -> None:
    _, out, _ = finished("keygen", "--scheme", scheme)
    assert SigningKey.parse(out.strip(), scheme=scheme).reveal(scheme=scheme) == out.strip()


def test_keygen_of_a_pair_gives_the_sender_stdout_and_the_receivers_the_rest() -> None:
    status, out, err = finished("keygen", "--scheme", "svix", "--ed25519")
    private = SigningKey.parse(out.strip(), scheme="svix")
    assert (status, out.count("\n"), private.can_sign) == (0, 1, True)
    assert err == f"for receivers: {private.public().reveal()}\n"


def test_keygen_of_a_pair_for_a_scheme_without_pairs_names_the_others() -> None:
    status, out, err = finished("keygen", "--scheme", "axiom", "--ed25519")
    assert (status, out) == (2, "")
    assert "standard-webhooks" in err


def test_the_version_is_shown() -> None:
    status, out, _ = finished("--version")
    assert status == 0
    assert out.startswith("hookline ")


def test_the_command_looks_for_all_that_its_extra_installs() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {line.partition(">")[0] for line in project["optional-dependencies"][EXTRA]} == set(NEEDED)


@pytest.mark.parametrize("missing", NEEDED)
def test_without_its_extra_the_command_says_which_one_to_install(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; sys.stderr = sys.stdout\n"
    with python("-c", f"{code}from hookline_sender.cli import main; main()") as process:
        out, _ = process.communicate(timeout=HANG)
    assert process.returncode == 1
    assert out == f"hookline: the command needs {missing}, install it with: pip install 'hookline[sender]'\n"
