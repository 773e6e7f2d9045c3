"""The commands: what they are called with, and help."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hookline_sender.cli import standing
from hookline_sender.cli.dev_command import WithCommand
from hookline_sender.cli.failures import told
from hookline_sender.cli.loading import Target, UnusablePlan, find, load, load_plan
from hookline_sender.cli.operations import DeploymentFile, PlanArgument, add_to, told_in
from hookline_sender.cli.registry import add_registry_to
from hookline_sender.cli.serving import log_to_stderr, serve
from hookline_sender.egress.named import TransportName  # noqa: TC001 - typer reads it
from hookline_sender.limits import MAX_SLOTS
from hookline_sender.plan import Plan
from hookline_shared.keys import SigningKey

if TYPE_CHECKING:
    from hookline_sender.deployment import Deployment
    from hookline_sender.worker import Worker

log = logging.getLogger(__name__)

DEFAULT_CONCURRENCY = 100
INTERRUPTED = 128 + signal.SIGINT

# pretty_exceptions would print the values of local variables, keys and payloads among them. Rich boxes would break a
# sentence, and the line to paste in it, at their own width, also in a pipe.
app = typer.Typer(
    name="hookline",
    help="Durable webhooks for Python services.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
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
    plan: PlanArgument = "",
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_SLOTS, show_default=str(DEFAULT_CONCURRENCY), help="Attempts in progress at once."),
    ] = None,
    transport: Annotated[
        TransportName | None,
        typer.Option(
            show_default="httpx", help="What sends: fast needs the extra of that name, and is for production."
        ),
    ] = None,
    deployment: DeploymentFile = None,
) -> None:
    """Deliver the events of a plan until SIGTERM or Ctrl-C.

    Then it finishes what is in progress. The deployment is read from a file, else from the environment:
    HOOKLINE_REDIS_URL, HOOKLINE_NAMESPACE and, for each webhook, HOOKLINE_WEBHOOK_<NAME>_URL and _KEY. MODULE:PLAN may
    also name a Worker, which brings its own.
    """
    log_to_stderr()
    with told():
        target = find(plan, Path.cwd())
        found = load(target)
        if isinstance(found, Plan):
            where = told_in(deployment)
            found = _worker_of(
                found, where, concurrency=concurrency or DEFAULT_CONCURRENCY, transport=transport or "httpx"
            )
        else:
            _refuse_options_of_a_worker(target, concurrency=concurrency, transport=transport, deployment=deployment)
        for sentence in found.missing():
            log.warning("%s", sentence)
        gc.freeze()  # what was imported stays: going through it again and again is a tenth of a worker's time
        serve(found.run())


@app.command(cls=WithCommand)
def dev(context: typer.Context, plan: PlanArgument = "") -> None:
    """Run a COMMAND with everything that a plan needs.

    That is a Redis-compatible server, a worker and a receiver of each webhook. `hookline dev shop:plan -- python
    shop.py` sets the command's environment, grants included, shows what becomes of its events, and exits with its
    status. Without a command it prints the environment, to be pasted into other terminals, and stays until Ctrl-C.
    Whatever it started ends with it, and what was stored is gone.

    A webhook whose HOOKLINE_WEBHOOK_<NAME>_URL is set already is delivered there instead.
    """
    from hookline_sender.cli.dev import run_dev  # noqa: PLC0415 - as _worker_of

    command: tuple[str, ...] = context.obj or ()
    with told():
        target = find(plan, Path.cwd())
        status = asyncio.run(run_dev(target, load_plan(target), command))
    raise typer.Exit(status)


@app.command()
def keygen(
    scheme: Annotated[
        Literal["axiom", "standard-webhooks", "svix"] | None,
        typer.Option(show_default="axiom", help="Whose key text: that of the webhook's profile."),
    ] = None,
    *,
    ed25519: Annotated[
        bool, typer.Option("--ed25519", help="A key that signs; the one that only verifies it goes to stderr.")
    ] = False,
) -> None:
    """Print a new signing key, for the sender and the receiver.

    The sender has it in HOOKLINE_WEBHOOK_<NAME>_KEY. With --ed25519 receivers get the other key, which stands on
    stderr.
    """
    if not ed25519:
        typer.echo(SigningKey.generate().reveal(scheme=scheme or "axiom"))
        return
    if scheme == "axiom":
        raise typer.BadParameter("axiom signs with HMAC only: --scheme standard-webhooks or --scheme svix")
    key = SigningKey.generate_ed25519()
    typer.echo(key.reveal())
    typer.echo(f"for receivers: {key.public().reveal()}", err=True)


@app.command()
def demo(
    events: Annotated[int, typer.Option(min=20, max=10_000, help="How many events to publish.")] = 300,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Show the whole path on this machine, and count what arrived.

    It publishes, delivers, retries and loses a worker, with a Redis or Valkey server, a receiver and workers of its
    own, which it ends again. Exits with 1 when anything that it claims does not hold.
    """
    from hookline_sender.cli.demo import Scale, run_demo  # noqa: PLC0415 - as _worker_of
    from hookline_sender.cli.demo_report import show  # noqa: PLC0415

    with told():
        try:
            evidence = asyncio.run(run_demo(Scale.of(events)))
        except KeyboardInterrupt:
            typer.echo("hookline: interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None
    if not show(evidence, as_json=json):
        raise typer.Exit(1)


add_to(app)
standing.add_to(app)
add_registry_to(app)


def _refuse_options_of_a_worker(target: Target, **options: object) -> None:
    for name, given in options.items():
        if given is not None:
            raise UnusablePlan(f"{target.text} is a Worker, which has a {name} of its own: leave out --{name}")


def _worker_of(plan: Plan, deployment: Deployment | None, *, concurrency: int, transport: TransportName) -> Worker:
    if not plan.webhooks:
        raise UnusablePlan(f'plan "{plan.name}" has no webhook, so there is nothing to deliver: add plan.webhook(…)')
    from hookline_sender.worker import Worker  # noqa: PLC0415 - HTTP clients, which no other command has to wait for

    names = ", ".join(plan.webhooks)
    log.info('plan "%s": delivering to %s, %d at once over %s', plan.name, names, concurrency, transport)
    return Worker(plan, deployment, concurrency=concurrency, transport=transport)


def _version() -> str:
    try:
        return metadata.version("hookline")
    except metadata.PackageNotFoundError:
        return "(not installed)"
