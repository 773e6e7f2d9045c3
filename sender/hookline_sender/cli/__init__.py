"""The `hookline` command."""

from __future__ import annotations

import importlib
import sys
from typing import Final

EXTRA: Final = "sender"


def main() -> None:
    """Run the command line of this process. Without the extra it needs, say which one and exit with 1."""
    try:
        app = importlib.import_module("hookline_sender.cli.app").app
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package.startswith("hookline"):
            raise
        sys.exit(f"hookline: the command needs {package}, install it with: pip install 'hookline[{EXTRA}]'")
    app()
