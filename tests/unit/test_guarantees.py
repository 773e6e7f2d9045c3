"""docs/guarantees.md names tests; they exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUARANTEES = (ROOT / "docs/guarantees.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", GUARANTEES)


@cache
def names_in(file: str) -> set[str]:
    module = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {each.name for each in module.body if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")}


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_a_test_that_a_guarantee_names_exists(file: str, test: str) -> None:
    assert test in names_in(file)


def test_every_guarantee_names_a_test() -> None:
    rows = [line for line in GUARANTEES.splitlines() if line.startswith("| ") and not line.startswith("| promise |")]
    assert len(rows) > 20
    assert [row for row in rows if "::" not in row] == []
