"""`python -m hookline_sender.cli`: the command without its script on PATH."""

from __future__ import annotations

from hookline_sender.cli import main

main()
