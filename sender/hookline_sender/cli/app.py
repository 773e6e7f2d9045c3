"""The commands, and what their failures look like: one sentence on stderr and an exit status.

0    done, or stopped gracefully
1    failed
2    called wrongly: an unknown option, no such plan
128+ ended by that signal
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import traceback
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hookline_sender.cli.demo import Scale, run_demo
from hookline_sender.cli.demo_report import show
from hookline_sender.cli.loading import UnusablePlan, load
from hookline_sender.cli.serving import log_to_stderr, until_signalled
from hookline_sender.plan import Plan
from hookline_sender.worker import MAX_CONCURRENCY, Worker
from hookline_shared.errors import HooklineError
from hookline_shared.keys import SigningKey

if TYPE_CHECKING:
    from collections.abc import Generator

log = logging.getLogger(__name__)

DEFAULT_CONCURRENCY = 100
INTERRUPTED = 128 + signal.SIGINT

# pretty_exceptions would print the values of local variables, keys and payloads among them.
app = typer.Typer(
    name="hookline",
    help="Durable webhooks for Python services.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer's callback
    if wanted:
        typer.echo(f"hookline {_version()}")
        raise typer.Exit


@app.callback()
def hookline(
    version: Annotated[  # noqa: FBT002 - an option, never positional
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Durable webhooks for Python services."""
    del version  # its callback has done everything


@app.command()
def worker(
    plan: Annotated[
        str,
        typer.Argument(metavar="MODULE:PLAN", envvar="HOOKLINE_PLAN", help="The plan to work for, as in shop:plan."),
    ] = "",
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1, max=MAX_CONCURRENCY, show_default=str(DEFAULT_CONCURRENCY), help="Attempts in progress at once."
        ),
    ] = None,
) -> None:
    """Deliver the events of a plan until SIGTERM or Ctrl-C, and then finish what is in progress.

    The deployment is read from the environment: HOOKLINE_REDIS_URL, HOOKLINE_NAMESPACE and, for each webhook,
    HOOKLINE_WEBHOOK_<NAME>_URL and _KEY. MODULE:PLAN may also name a Worker, which brings its own.
    """
    log_to_stderr()
    with _told():
        found = load(plan, Path.cwd())
        if isinstance(found, Plan):
            found = _worker_of(found, concurrency or DEFAULT_CONCURRENCY)
        elif concurrency is not None:
            raise UnusablePlan(f"{plan} is a Worker, which has a concurrency of its own: leave out --concurrency")
        gc.freeze()  # what was imported stays: going through it again and again is a tenth of a worker's time
        asyncio.run(until_signalled(found.run()))


@app.command()
def keygen() -> None:
    """Print a new signing key, for the sender's HOOKLINE_WEBHOOK_<NAME>_KEY and for the receiver."""
    typer.echo(SigningKey.generate().reveal())


@app.command()
def demo(
    events: Annotated[int, typer.Option(min=20, max=10_000, help="How many events to publish.")] = 300,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Show the whole path on this machine: publish, deliver, retry, lose a worker, count what arrived.

    Starts a Redis or Valkey server, a receiver and workers of its own, and ends them again. Exits with 1 when anything
    that it claims does not hold.
    """
    with _told():
        try:
            evidence = asyncio.run(run_demo(Scale.of(events)))
        except KeyboardInterrupt:
            typer.echo("hookline: interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None
    if not show(evidence, as_json=json):
        raise typer.Exit(1)


def _worker_of(plan: Plan, concurrency: int) -> Worker:
    if not plan.webhooks:
        raise UnusablePlan(f'plan "{plan.name}" has no webhook, so there is nothing to deliver: add plan.webhook(…)')
    log.info('plan "%s": delivering to %s, %d at once', plan.name, ", ".join(plan.webhooks), concurrency)
    return Worker(plan, concurrency=concurrency)


@contextmanager
def _told() -> Generator[None]:
    """Turn an error that was raised on purpose into its sentence and an exit status."""
    try:
        yield
    except HooklineError as error:
        if error.__cause__ is not None and isinstance(error, UnusablePlan):
            traceback.print_exception(error.__cause__)
        typer.echo(f"hookline: {error}", err=True)
        raise typer.Exit(2 if isinstance(error, UnusablePlan) else 1) from None


def _version() -> str:
    try:
        return metadata.version("hookline")
    except metadata.PackageNotFoundError:
        return "(not installed)"
