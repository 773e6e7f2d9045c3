"""The demo's result for people and for programs."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hookline_sender.cli.demo_evidence import rows, verdicts
from hookline_sender.cli.demo_plan import FLAKY, GONE, GOOD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hookline_sender.cli.demo_evidence import Evidence, Row, Verdict

MANNERS: Final = {GOOD: "works", FLAKY: "fails at first", GONE: "is gone"}


def show(evidence: Evidence, *, as_json: bool) -> bool:
    """Print the result to stdout; True when every claim holds."""
    lines, judged = rows(evidence), verdicts(evidence)
    if as_json:
        Console().out(json.dumps(_document(evidence, lines, judged)), highlight=False)
    else:
        _print(Console(highlight=False), evidence, lines, judged)
    return all(verdict.holds for verdict in judged)


def _print(console: Console, evidence: Evidence, lines: Sequence[Row], judged: Sequence[Verdict]) -> None:
    console.print()
    console.print(_table(lines))
    console.print()
    for verdict in judged:
        mark = Text("  ok    ", "green") if verdict.holds else Text("  FAILED", "bold red")
        console.print(mark, Text(verdict.claim), soft_wrap=True)
    console.print(f"\n{_summary(judged)} {evidence.seconds:.1f} s.", style="bold")


def _table(lines: Sequence[Row]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("destination", "behaviour"):
        table.add_column(heading, no_wrap=True)
    for heading in ("delivered", "retried", "dead"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("it answered", no_wrap=True)
    for row in lines:
        numbers = (str(number) for number in (row.delivered, row.retried, row.dead))
        table.add_row(row.destination, MANNERS[row.destination], *numbers, _answers(row.answers))
    return table


def _answers(answers: Mapping[int, int]) -> str:
    return ", ".join(f"{number} × {status}" for status, number in sorted(answers.items()))


def _summary(judged: Sequence[Verdict]) -> str:
    failed = sum(not verdict.holds for verdict in judged)
    return f"{failed} of {len(judged)} claims do not hold." if failed else f"All {len(judged)} claims hold."


def _document(evidence: Evidence, lines: Sequence[Row], judged: Sequence[Verdict]) -> dict[str, object]:
    return {
        "holds": all(verdict.holds for verdict in judged),
        "events": len(evidence.published),
        "seconds": round(evidence.seconds, 1),
        "destinations": [asdict(row) for row in lines],
        "claims": [asdict(verdict) for verdict in judged],
    }
