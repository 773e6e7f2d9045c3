from __future__ import annotations

import secrets
import sys
import traceback
from typing import TYPE_CHECKING

import pytest

from hookline_sender import Plan, Worker
from hookline_sender.cli.loading import Target, UnusablePlan, find, load, load_plan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHOP = """
from hookline_sender import Plan, Worker
plan = Plan("shop")
spare = Plan("spare")
worker = Worker(plan)
number = 7
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A directory that importing may use, forgotten afterwards."""
    before = sys.path[:]
    yield tmp_path
    sys.path[:] = before


def module(folder: Path, source: str = SHOP) -> str:
    name = f"shop_{secrets.token_hex(4)}"
    (folder / f"{name}.py").write_text(source, encoding="utf-8")
    return name


def complaint(target: str, folder: Path) -> str:
    with pytest.raises(UnusablePlan) as caught:
        load(Target(target, folder))
    return str(caught.value)


def test_a_plan_is_found_by_module_and_attribute(folder: Path) -> None:
    found = load(Target(f"{module(folder)}:plan", folder))
    assert isinstance(found, Plan)
    assert found.name == "shop"


def test_a_worker_is_taken_as_it_is(folder: Path) -> None:
    assert isinstance(load(Target(f"{module(folder)}:worker", folder)), Worker)


def test_modules_in_packages_are_found(folder: Path) -> None:
    package = f"p_{secrets.token_hex(4)}"
    (folder / package).mkdir()
    name = module(folder / package)
    assert isinstance(load(Target(f"{package}.{name}:plan", folder)), Plan)


def nowhere(folder: Path) -> str:
    with pytest.raises(UnusablePlan) as caught:
        find("", folder, {})
    return str(caught.value)


def project(folder: Path, content: str) -> Path:
    path = folder / "pyproject.toml"
    path.write_text(content, encoding="utf-8")
    return path


def test_an_argument_wins_over_the_variable_and_the_variable_over_the_project(folder: Path) -> None:
    project(folder, '[tool.hookline]\nplan = "third:plan"')
    environ = {"HOOKLINE_PLAN": "second:plan"}
    found = [find("first:plan", folder, environ), find("", folder, environ), find("", folder, {})]
    assert [target.text for target in found] == ["first:plan", "second:plan", "third:plan"]


def test_the_nearest_project_upwards_names_the_plan_and_where_its_module_is(folder: Path) -> None:
    project(folder, '[tool.hookline]\nplan = "shop:plan"')
    below = folder / "src" / "deep"
    below.mkdir(parents=True)
    assert (find("", below, {}).text, find("", below, {}).folder) == ("shop:plan", folder)


def test_a_nearer_project_without_a_plan_hides_those_above(folder: Path) -> None:
    project(folder, '[tool.hookline]\nplan = "shop:plan"')
    below = folder / "service"
    below.mkdir()
    project(below, "[project]\nname = 'service'")
    assert "which plan?" in nowhere(below)


def test_naming_nothing_gives_three_lines_to_choose_from(folder: Path) -> None:
    for line in ("hookline dev shop:plan", "export HOOKLINE_PLAN=shop:plan", 'plan = "shop:plan"'):
        assert line in nowhere(folder)


def test_the_lines_name_the_plan_that_is_there(folder: Path) -> None:
    (folder / "orders.py").write_text('events: Plan = Plan("orders")\n', encoding="utf-8")
    assert "export HOOKLINE_PLAN=orders:events" in nowhere(folder)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [("[tool.hookline]\nplan = 7", 'plan = "shop:plan"'), ("[tool", "cannot be read"), ("tool = 1", "which plan?")],
)
def test_an_unusable_project_is_named_with_its_fault(content: str, sentence: str, folder: Path) -> None:
    project(folder, content)
    assert sentence in nowhere(folder)


def test_an_error_says_where_the_wrong_name_stands(folder: Path) -> None:
    path = project(folder, '[tool.hookline]\nplan = "shop"')
    for target in (find("", folder, {}), find("", folder, {"HOOKLINE_PLAN": "shop"})):
        with pytest.raises(UnusablePlan, match=f"^({path}|HOOKLINE_PLAN): "):
            load(target)


def test_a_command_that_needs_a_plan_refuses_a_worker(folder: Path) -> None:
    with pytest.raises(UnusablePlan, match=r"is a Worker.*:plan$"):
        load_plan(Target(f"{module(folder)}:worker", folder))


@pytest.mark.parametrize("target", ["shop", "shop:", ":plan", "shop.py:plan", "./shop:plan", "shop:plan:x", "a b:c"])
def test_a_malformed_target_is_answered_with_an_example(target: str, folder: Path) -> None:
    assert "shop.py: shop:plan" in complaint(target, folder)


def test_a_missing_module_says_where_it_was_looked_for(folder: Path) -> None:
    text = complaint("no_such_module_here:plan", folder)
    assert 'no module "no_such_module_here"' in text
    assert str(folder) in text


def test_a_wrong_attribute_is_answered_with_the_plans_there_are(folder: Path) -> None:
    name = module(folder)
    text = complaint(f"{name}:plna", folder)
    assert '"plna"' in text
    assert f"{name}:plan, {name}:spare" in text


def test_what_is_no_plan_is_named_by_its_type(folder: Path) -> None:
    assert "is a int and not a Plan or a Worker" in complaint(f"{module(folder)}:number", folder)


def test_a_module_without_any_plan_is_called_that(folder: Path) -> None:
    assert "no plan at all" in complaint(f"{module(folder, 'x = 1')}:plan", folder)


@pytest.mark.parametrize("source", ["import no_such_dependency", "1 / 0", "def (", "raise RuntimeError('why')"])
def test_a_module_that_fails_shows_its_own_error_and_only_its_own_frames(source: str, folder: Path) -> None:
    with pytest.raises(UnusablePlan, match="failed to import with the") as caught:
        load(Target(f"{module(folder, source)}:plan", folder))
    assert caught.value.__cause__ is not None
    files = {frame.filename for frame in traceback.extract_tb(caught.value.__cause__.__traceback__)}
    assert all(name.startswith(str(folder)) for name in files)
