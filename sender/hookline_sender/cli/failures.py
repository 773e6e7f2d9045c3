"""What a command's failure looks like: one sentence on stderr and an exit status.

0    done, or stopped gracefully
1    failed
2    called wrongly: an unknown option, no such plan, a question without an answer
128+ ended by that signal
"""

from __future__ import annotations

import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from hookline_sender.cli.loading import UnusablePlan
from hookline_sender.errors import InvalidQuestion
from hookline_shared.errors import HooklineError

if TYPE_CHECKING:
    from collections.abc import Generator


@contextmanager
def told() -> Generator[None]:
    """Turn an error that was raised on purpose into its sentence and an exit status."""
    try:
        yield
    except HooklineError as error:
        if error.__cause__ is not None and isinstance(error, UnusablePlan):
            traceback.print_exception(error.__cause__)
        typer.echo(f"hookline: {error}", err=True)
        raise typer.Exit(2 if isinstance(error, UnusablePlan | InvalidQuestion) else 1) from None
