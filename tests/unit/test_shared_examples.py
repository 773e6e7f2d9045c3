from __future__ import annotations

import doctest
from typing import TYPE_CHECKING

import pytest

from hookline_shared import event, signature

if TYPE_CHECKING:
    from types import ModuleType


@pytest.mark.parametrize("module", [event, signature], ids=lambda module: module.__name__)
def test_the_examples_in_the_docstrings_hold(module: ModuleType) -> None:
    tried = doctest.testmod(module)
    assert tried.attempted > 0
    assert tried.failed == 0
