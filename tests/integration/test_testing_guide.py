"""The testing guide tells the truth: the tests it shows pass."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support import python

GUIDE = Path(__file__).parents[2] / "docs" / "testing.md"
SETTINGS = """
[pytest]
filterwarnings = error
addopts = -p no:cacheprovider -p no:valkey -p no:anyio -p no:xdist -p no:cov
"""


def test_the_tests_shown_for_code_that_sends_pass(tmp_path: Path) -> None:
    half = GUIDE.read_text("utf-8").partition("## Code that sends\n")[2].partition("\n## ")[0]
    blocks: list[str] = re.findall(r"```python\n(.*?)```", half, re.DOTALL)
    for block in blocks:
        (tmp_path / block.splitlines()[0].removeprefix("# ")).write_text(block, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text(SETTINGS, encoding="utf-8")
    environ = {"HOOKLINE_GRANTS": "publish:*", "REDIS_URL": "", "HOOKLINE_REDIS_URL": ""}
    with python("-m", "pytest", "-c", str(tmp_path / "pytest.ini"), str(tmp_path), environ=environ) as process:
        said, _ = process.communicate(timeout=60)
    assert "4 passed" in said, said
