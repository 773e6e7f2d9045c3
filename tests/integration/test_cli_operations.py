"""`hookline inspect`, `list`, `cancel` and `redrive`, as an operator types them."""

from __future__ import annotations

import json
import runpy
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from hookline_sender import Deployment
from hookline_sender.engine.records import Dead
from tests.support_cli import SHOP, finished
from tests.support_engine import Engine, Lane

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BILLING = Lane("billing")


class Shell:
    """A directory with a plan, its namespace in Redis, and a shell with the grants of an operator."""

    def __init__(self, folder: Path, redis_url: str, namespace: str) -> None:
        (folder / "shop.py").write_text(SHOP, "utf-8")
        self.folder = folder
        self.environ = {
            "HOOKLINE_REDIS_URL": redis_url,
            "HOOKLINE_NAMESPACE": namespace,
            "HOOKLINE_GRANTS": "cancel:webhook:* recover:webhook:*",
            "HOOKLINE_PLAN": "shop:plan",
        }
        plan = runpy.run_path(str(folder / "shop.py"))["plan"]
        assert Deployment.from_env(plan, self.environ).namespace == namespace
        self.engine = Engine(redis_url, namespace, plan)

    def run(self, *arguments: str, **environ: str) -> tuple[int, str, str]:
        return finished(*arguments, environ=self.environ | environ, cwd=self.folder)

    def json(self, *arguments: str) -> Any:
        status, out, err = self.run(*arguments, "--json")
        assert status == 0, err
        return json.loads(out)

    def dead_letter(self, key: str = "order-1", why: Dead = Dead("http_4xx", 12, 404)) -> str:  # noqa: B008 - frozen
        self.engine.publish(key, BILLING, body=b'{"card": "4242"}')
        task = self.engine.one()
        self.engine.settle(task, why)
        return task.delivery_id


@pytest.fixture
def shell(tmp_path: Path, redis_url: str, namespace: str) -> Iterator[Shell]:
    made = Shell(tmp_path, redis_url, namespace)
    with closing(made.engine.redis):
        yield made


def test_commands_of_an_operator_read_a_file_instead_of_the_environment(shell: Shell) -> None:
    delivery_id, file = shell.dead_letter(), shell.folder / "elsewhere.toml"
    text = f'namespace = "{shell.environ["HOOKLINE_NAMESPACE"]}"\ngrants = ["recover:webhook:billing"]\n'
    file.write_text(text, encoding="utf-8")
    told = ("--deployment", "elsewhere.toml")
    for command in ("list", "inspect", "redrive", "cancel"):
        about = () if command == "list" else (delivery_id,)
        status, out, err = shell.run(command, *about, *told, HOOKLINE_NAMESPACE="other")
        assert (status, delivery_id in out) == ((1, False) if command == "cancel" else (0, True)), err  # no grant
    for command in ("destinations", "reseal"):
        assert shell.run(command, "--deployment", "missing.toml")[0] == 1


def test_a_redirect_is_shown_with_its_path_and_whose_fault_it_is(shell: Shell) -> None:
    delivery_id = shell.dead_letter(why=Dead("redirect", 3, 307, "/hooks/shop/"))
    status, out, _ = shell.run("inspect", delivery_id)
    assert (status, "redirect to:  /hooks/shop/" in out, "fault of:     the destination" in out) == (0, True, True)
    shown = shell.json("inspect", delivery_id)
    assert (shown["history"][0]["location"], shown["failure_class"]) == ("/hooks/shop/", "customer")
    assert shell.json("list", "--dead")[0]["failure_class"] == "customer"


def test_a_dead_letter_is_found_looked_at_and_redriven_once(shell: Shell) -> None:
    delivery_id = shell.dead_letter()
    status, out, _ = shell.run("list", "--dead", "--limit", "5")
    assert (status, out.splitlines()[0].split()[:3]) == (0, ["ID", "STATE", "WHEN"])
    assert all(word in out for word in (delivery_id, "failed", "order.paid", "billing", "http_4xx", "404", "order-1"))
    status, out, _ = shell.run("inspect", delivery_id)
    assert all(word in out for word in ("state:", "failed", "http_4xx 404", "ATTEMPT", "12 ms", "w1"))
    assert "4242" not in out
    for _ in range(2):
        status, out, _ = shell.run("redrive", delivery_id, "--request-id", "ticket-7")
        assert (status, "was put back in its queue" in out) == (0, True)
    record = shell.json("inspect", delivery_id)
    assert (record["state"], record["attempts"]) == ("accepted", 0)
    assert [each["request_id"] for each in record["recoveries"]] == ["ticket-7"]


def test_a_delivery_is_cancelled_once_and_then_answers_its_state(shell: Shell) -> None:
    shell.engine.publish("order-1", BILLING)
    delivery_id = shell.engine.id_of("order-1", BILLING)
    assert shell.run("cancel", delivery_id)[:2] == (0, f"{delivery_id} is cancelled\n")
    assert shell.json("cancel", delivery_id) == {"delivery_id": delivery_id, "state": "cancelled"}
    assert "no dead letter but cancelled" in shell.run("redrive", delivery_id)[1]


def test_lists_are_filtered_and_an_empty_one_says_so(shell: Shell) -> None:
    delivery_id = shell.dead_letter()
    (found,) = shell.json("list", "--code", "http_4xx", "--binding", "billing", "--since", "1h")
    assert (found["delivery_id"], found["state"]) == (delivery_id, "failed")
    assert shell.run("list", "--until", "2020-01-01T00:00:00Z")[:2] == (0, "none\n")
    assert shell.json("list", "--state", "waiting", "--binding", "billing") == []


def test_an_id_that_begins_with_a_dash_needs_no_care(shell: Shell) -> None:
    number = next(n for n in range(10_000) if shell.engine.id_of(f"o{n}", BILLING).startswith("-"))
    delivery_id = shell.dead_letter(f"o{number}")
    assert shell.json("inspect", delivery_id)["delivery_id"] == delivery_id
    assert shell.run("redrive", delivery_id, "shop:plan", HOOKLINE_PLAN="")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["inspect", "x" * 38], 1, "no delivery"),
        (["inspect", "short"], 1, "is not a delivery id"),
        (["list", "--state", "waiting"], 2, "name its binding"),
        (["list", "--dead", "--state", "running"], 2, "--dead is the same as --state failed"),
        (["list", "--since", "yesterday"], 2, "--since 'yesterday'"),
        (["list", "--until", "999999d"], 2, "--until '999999d'"),
        (["redrive", "x" * 38, "--request-id", "two words"], 2, "request_id must be"),
        (["health", "biling"], 2, 'the plan "shop" has no webhook "biling": it has billing'),
        (["resume", "biling"], 2, 'has no webhook "biling"'),
        (["health", "billing", "--destination", "acme"], 1, "no destination 'acme' is registered"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(shell: Shell, arguments: list[str], status: int, said: str) -> None:
    code, out, err = shell.run(*arguments, COLUMNS="200")
    assert (code, out) == (status, "")
    assert said in err
    assert "Traceback" not in err


def test_a_missing_grant_is_named_with_the_line_to_add(shell: Shell) -> None:
    delivery_id = shell.dead_letter()
    for command, grant in (("cancel", "cancel:webhook:billing"), ("redrive", "recover:webhook:billing")):
        status, _, err = shell.run(command, delivery_id, HOOKLINE_GRANTS="")
        assert (status, f'add "{grant}" to grants' in err) == (1, True)


def test_a_warning_is_a_sentence_on_stderr(shell: Shell) -> None:
    delivery_id = shell.dead_letter()
    shell.engine.step(8 * 86_400)
    status, _, err = shell.run("redrive", delivery_id)
    assert status == 0
    assert err.startswith("hookline: warning: ")
    assert "ledger_horizon" in err


def test_a_destination_that_is_gone_is_shown_and_resumed(shell: Shell) -> None:
    shell.dead_letter(why=Dead("gone", 3, 410))
    status, out, _ = shell.run("health", "billing")
    assert (status, out.splitlines()[0], "dead letters: 1" in out) == (0, "deliveries:   disabled (gone)", True)
    assert shell.json("health", "billing", "--destination", "billing")["disabled"] == "gone"
    status, out, _ = shell.run("resume", "billing")
    assert (status, out) == (0, "billing has its deliveries again, one at a time until it succeeds\n")
    shown = shell.json("health", "billing")
    assert (shown["disabled"], shown["dead"]) == (None, 1)


def test_resuming_needs_the_grant(shell: Shell) -> None:
    status, _, err = shell.run("resume", "billing", HOOKLINE_GRANTS="")
    assert (status, 'add "recover:webhook:billing" to grants' in err) == (1, True)


def test_a_list_of_a_webhook_that_the_plan_lacks_says_so(shell: Shell) -> None:
    status, out, err = shell.run("list", "--binding", "biling")
    assert (status, out) == (0, "none\n")
    assert err == 'hookline: warning: the plan "shop" has no webhook "biling": it has billing\n'
    assert "has no webhook" in shell.run("destinations", "--webhook", "biling")[2]
