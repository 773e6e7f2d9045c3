"""`hookline health` and `resume`: how a destination stands, and letting it have its deliveries again."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from hookline_sender.cli.operations import AsJson, DeploymentFile, PlanArgument, dumped, operated
from hookline_sender.cli.operations_report import lines_of, time_of

if TYPE_CHECKING:
    from hookline_sender.engine.standing import Standing

Webhook = Annotated[str, typer.Argument(metavar="WEBHOOK", show_default=False, help="The webhook's name in the plan.")]
DestinationId = Annotated[
    str, typer.Option(metavar="ID", show_default="the webhook's own", help="A registered destination of it.")
]


def health(
    webhook: Webhook,
    plan: PlanArgument = "",
    *,
    destination: DestinationId = "",
    deployment: DeploymentFile = None,
    json: AsJson = False,
) -> None:
    """Show what waits for a destination, and whether it fails."""
    found = operated(plan, deployment, lambda operator: operator.health(webhook, destination))
    typer.echo(dumped(asdict(found)) if json else told_of(found))


def resume(
    webhook: Webhook,
    plan: PlanArgument = "",
    *,
    destination: DestinationId = "",
    deployment: DeploymentFile = None,
) -> None:
    """Deliver again to a destination that was paused or disabled. Needs the grant recover:webhook:NAME."""
    operated(plan, deployment, lambda operator: operator.resume(webhook, destination))
    typer.echo(f"{destination or webhook} has its deliveries again, one at a time until it succeeds")


def add_to(app: typer.Typer) -> None:
    """Make these commands of `app`."""
    app.command()(health)
    app.command()(resume)


def told_of(standing: Standing) -> str:
    """A destination's standing, a line for each fact there is."""
    stopped = f"disabled ({standing.disabled})" if standing.disabled else "paused" if standing.paused else ""
    return lines_of(
        [
            ("deliveries", stopped or ("held back" if standing.held_until_ms else "made")),
            ("unfinished", f"{standing.open}, {standing.in_flight} in flight"),
            ("dead letters", str(standing.dead)),
            ("at once", "" if standing.at_once is None else f"at most {standing.at_once} so far"),
            ("failing", f"{standing.failures} in a row" if standing.failures else ""),
            ("since", time_of(standing.failing_since_ms)),
            ("breaker", "" if standing.breaker == "closed" else standing.breaker),
            ("held until", time_of(standing.held_until_ms)),
            ("slow", "its last attempt timed out" if standing.slow else ""),
        ]
    )
