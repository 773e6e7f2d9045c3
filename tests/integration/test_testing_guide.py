"""The testing guide tells the truth: the tests it shows pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import HANG, python

GUIDE = Path(__file__).parents[2] / "docs" / "testing.md"
SETTINGS = """
[pytest]
filterwarnings = error
addopts = -p no:cacheprovider -p no:valkey -p no:anyio -p no:xdist -p no:cov
"""


@pytest.mark.parametrize(("half", "passed"), [("Code that sends", 4), ("Code that receives", 1)])
def test_the_tests_shown_pass(tmp_path: Path, half: str, passed: int) -> None:
    text = GUIDE.read_text("utf-8").partition(f"## {half}\n")[2].partition("\n## ")[0]
    blocks: list[str] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for block in blocks:
        (tmp_path / block.splitlines()[0].removeprefix("# ")).write_text(block, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text(SETTINGS, encoding="utf-8")
    environ = {"HOOKLINE_GRANTS": "publish:*", "REDIS_URL": "", "HOOKLINE_REDIS_URL": ""}
    with python("-m", "pytest", "-c", str(tmp_path / "pytest.ini"), str(tmp_path), environ=environ) as process:
        said, _ = process.communicate(timeout=HANG)
    assert f"{passed} passed" in said, said
