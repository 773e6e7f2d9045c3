"""`hookline inspect`, `list`, `cancel` and `redrive`: looking at deliveries, and deciding about them."""

from __future__ import annotations

import asyncio
import json as jsonlib
import re
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from hookline_sender.cli.failures import told
from hookline_sender.cli.loading import find, load_plan
from hookline_sender.cli.operations_report import as_json, cancelled, details, redriven, table
from hookline_sender.deployment import Deployment
from hookline_sender.operator import Operator, StateWord
from hookline_sender.paging import MAX_LISTED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

R = TypeVar("R")

_AGO: Final = re.compile(r"(\d{1,6})([smhd])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

PlanArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:PLAN",
        show_default=False,
        help="The plan, as in shop:plan. Else HOOKLINE_PLAN, else tool.hookline.plan in pyproject.toml.",
    ),
]
DeploymentFile = Annotated[
    Path | None,
    typer.Option(
        "--deployment",
        metavar="FILE",
        show_default="the environment",
        help="A TOML file with the deployment's settings, read instead of HOOKLINE_* but those of URLs and keys.",
    ),
]
Delivery = Annotated[str, typer.Argument(metavar="ID", show_default=False, help="The delivery id.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object or array.")]


def inspect(
    delivery_id: Delivery, plan: PlanArgument = "", *, deployment: DeploymentFile = None, json: AsJson = False
) -> None:
    """Show one delivery with its attempts and redrives. Never its payload."""
    record = operated(plan, deployment, lambda operator: operator.inspect(delivery_id))
    typer.echo(dumped(as_json(record)) if json else details(record))


def list_(
    plan: PlanArgument = "",
    *,
    state: Annotated[StateWord, typer.Option(help="accepted and waiting need --binding.")] = "failed",
    dead: Annotated[bool, typer.Option("--dead", help="Dead letters: the same as --state failed.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=MAX_LISTED, help="At most so many, the newest.")] = 32,
    binding: Annotated[str, typer.Option(metavar="WEBHOOK", help="Of this webhook.")] = "",
    destination: Annotated[str, typer.Option(metavar="ID", help="Of this destination.")] = "",
    tenant: Annotated[str, typer.Option(help="Of this tenant.")] = "",
    code: Annotated[str, typer.Option(help="Whose last failure has this code, such as http_5xx.")] = "",
    since: Annotated[str, typer.Option(metavar="TIME", help="Not before this: 2h, 7d or 2030-01-31T12:00:00Z.")] = "",
    until: Annotated[str, typer.Option(metavar="TIME", help="Not after this.")] = "",
    deployment: DeploymentFile = None,
    json: AsJson = False,
) -> None:
    """List deliveries in one state, newest first.

    Without options it shows dead letters.
    """
    if dead and state != "failed":
        raise typer.BadParameter(f"--dead is the same as --state failed: leave out it or --state {state}")
    bounds = {"since": _moment("--since", since), "until": _moment("--until", until)}
    found = operated(
        plan,
        deployment,
        lambda operator: operator.list(
            "failed" if dead else state,
            limit,
            binding=binding,
            destination=destination,
            tenant=tenant,
            code=code,
            **bounds,
        ),
    )
    typer.echo(dumped([as_json(each) for each in found]) if json else table(found))


def cancel(
    delivery_id: Delivery, plan: PlanArgument = "", *, deployment: DeploymentFile = None, json: AsJson = False
) -> None:
    """End a delivery that nobody wants any more. Needs the grant cancel:webhook:NAME.

    A pending one is cancelled at once; one in progress unless its attempt succeeds; an ended one stays as it is.
    """
    done = operated(plan, deployment, lambda operator: operator.cancel(delivery_id))
    typer.echo(dumped(as_json(done)) if json else cancelled(done))


def redrive(
    delivery_id: Delivery,
    plan: PlanArgument = "",
    *,
    request_id: Annotated[
        str, typer.Option(metavar="TEXT", help="Repeating the command with the same one redrives once.")
    ] = "",
    accept_repeat: Annotated[
        bool, typer.Option("--accept-repeat", help="Also what may have taken effect already (code indeterminate).")
    ] = False,
    deployment: DeploymentFile = None,
    json: AsJson = False,
) -> None:
    """Deliver a dead letter again, with the same id and bytes. Needs the grant recover:webhook:NAME."""
    done = operated(
        plan,
        deployment,
        lambda operator: operator.redrive(delivery_id, request_id or None, accept_repeat=accept_repeat),
    )
    typer.echo(dumped(as_json(done)) if json else redriven(done))


def add_to(app: typer.Typer) -> None:
    """Make these commands of `app`."""
    app.command("list")(list_)
    for command in (inspect, cancel, redrive):
        # One delivery id in 64 begins with a dash.
        app.command(context_settings={"ignore_unknown_options": True})(command)


def told_in(file: Path | None) -> Deployment | None:
    """The deployment of `file`, None when there is none: then the environment has it. Raises InvalidDeployment."""
    return None if file is None else Deployment.from_file(file)


def operated(plan: str, file: Path | None, act: Callable[[Operator], Awaitable[R]]) -> R:
    """What `act` gives with an operator of the named plan; warnings and errors become sentences on stderr."""
    with told(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loaded = load_plan(find(plan, Path.cwd()))

        async def go() -> R:
            async with Operator(loaded, told_in(file)) as operator:
                return await act(operator)

        result = asyncio.run(go())
    for warning in caught:
        typer.echo(f"hookline: warning: {warning.message}", err=True)
    return result


def _moment(option: str, text: str) -> datetime | None:
    if not text:
        return None
    ago = _AGO.fullmatch(text)
    try:
        if ago:
            return datetime.now(UTC) - timedelta(seconds=int(ago[1]) * _UNITS[ago[2]])
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):  # the latter: longer ago than there are years
        moment = datetime.min  # noqa: DTZ901 - without a zone, which is what is refused
    if moment.tzinfo is None:
        raise typer.BadParameter(f"{option} {text!r} is neither like 2h or 7d nor a time with its zone")
    return moment


def dumped(value: Any) -> str:  # noqa: ANN401 - what JSON holds
    """What a command prints with --json."""
    return jsonlib.dumps(value, indent=2)
