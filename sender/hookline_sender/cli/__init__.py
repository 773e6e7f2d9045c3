"""The `hookline` command."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Final

EXTRA: Final = "sender"
NEEDED: Final = ("typer", "rich", "httpx", "httpcore", "h11", "idna", "redis")
"""What that extra installs, by the names that are imported. Not every command imports all of it."""


def main() -> None:
    """Run the command line of this process. Without the extra it needs, say which one and exit with 1."""
    for package in NEEDED:
        found = importlib.util.find_spec(package)
        if found is None or found.origin is None:  # a folder of that name is no package
            sys.exit(f"hookline: the command needs {package}, install it with: pip install 'hookline[{EXTRA}]'")
    importlib.import_module("hookline_sender.cli.app").app()
