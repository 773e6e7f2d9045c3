from __future__ import annotations

import secrets
import sys
import traceback
from typing import TYPE_CHECKING

import pytest

from hookline_sender import Plan, Worker
from hookline_sender.cli.loading import UnusablePlan, load

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
        load(target, folder)
    return str(caught.value)


def test_a_plan_is_found_by_module_and_attribute(folder: Path) -> None:
    found = load(f"{module(folder)}:plan", folder)
    assert isinstance(found, Plan)
    assert found.name == "shop"


def test_a_worker_is_taken_as_it_is(folder: Path) -> None:
    assert isinstance(load(f"{module(folder)}:worker", folder), Worker)


def test_modules_in_packages_are_found(folder: Path) -> None:
    package = f"p_{secrets.token_hex(4)}"
    (folder / package).mkdir()
    name = module(folder / package)
    assert isinstance(load(f"{package}.{name}:plan", folder), Plan)


def test_naming_nothing_says_how_to_name_a_plan(folder: Path) -> None:
    assert "hookline worker shop:plan" in complaint("", folder)
    assert "HOOKLINE_PLAN" in complaint("", folder)


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
        load(f"{module(folder, source)}:plan", folder)
    assert caught.value.__cause__ is not None
    files = {frame.filename for frame in traceback.extract_tb(caught.value.__cause__.__traceback__)}
    assert all(name.startswith(str(folder)) for name in files)
