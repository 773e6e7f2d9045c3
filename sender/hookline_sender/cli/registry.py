"""`hookline destinations` and `hookline reseal`: who is registered, and what seals their secrets."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hookline_sender import overview, resealing
from hookline_sender.cli.failures import told
from hookline_sender.cli.loading import find, load_plan
from hookline_sender.cli.operations import AsJson, DeploymentFile, PlanArgument, dumped, told_in
from hookline_sender.cli.operations_report import aligned, plain
from hookline_sender.deployment import Deployment
from hookline_sender.engine.store import RedisStore
from hookline_sender.opened import OpenRegistry
from hookline_sender.paging import MAX_LISTED

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hookline_sender.overview import DestinationPage, ListedDestination
    from hookline_sender.plan import Plan

_SHOWN = 10  # ids of destinations that cannot be opened
_HEAD = ("ID", "TENANT", "WEBHOOK", "EVENTS", "PROFILE", "AT ONCE", "STATE")


def destinations(
    plan: PlanArgument = "",
    *,
    tenant: Annotated[str, typer.Option(help="Of this tenant, by id.")] = "",
    webhook: Annotated[str, typer.Option(metavar="NAME", help="Of this webhook.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=MAX_LISTED, help="About so many.")] = 100,
    after: Annotated[str, typer.Option(metavar="TEXT", help="Go on where the command before said.")] = "",
    deployment: DeploymentFile = None,
    json: AsJson = False,
) -> None:
    """List registered destinations, of all tenants or of one. Never a URL, a header or a key."""
    with told():
        loaded = load_plan(find(plan, Path.cwd()))
        page = asyncio.run(_page(loaded, deployment, tenant=tenant, webhook=webhook, limit=limit, after=after))
    if webhook and webhook not in loaded.webhooks:
        known = ", ".join(loaded.webhooks) or "none"
        typer.echo(f'hookline: warning: the plan "{loaded.name}" has no webhook "{webhook}": it has {known}', err=True)
    if json:
        typer.echo(dumped(asdict(page)))
        return
    typer.echo("\n".join(aligned([_HEAD, *map(_row, page.destinations)])) if page.destinations else "none")
    if page.after:
        typer.echo(f"more with --after {page.after}", err=True)


def reseal(plan: PlanArgument = "", *, deployment: DeploymentFile = None) -> None:
    """Seal all registered destinations under the newest key.

    That is the first of HOOKLINE_KEY_ENCRYPTION_KEY; the others can go then. Needs register:webhook:NAME for each
    webhook with subscribers. Safe to stop and to run again. Exits with 1 when there is a destination that none of the
    keys opens.
    """
    with told():
        unreadable = asyncio.run(_reseal(load_plan(find(plan, Path.cwd())), deployment))
    if unreadable:
        shown = ", ".join(unreadable[:_SHOWN]) + (", …" if len(unreadable) > _SHOWN else "")
        typer.echo(
            f"hookline: none of the keys opens {len(unreadable)} of them, which stay as they are: {shown}. Put the key "
            "that sealed them behind the newest one and run this again, or register them again with their key",
            err=True,
        )
        raise typer.Exit(1)


def add_registry_to(app: typer.Typer) -> None:
    """Make these commands of `app`."""
    app.command()(destinations)
    app.command()(reseal)


async def _page(plan: Plan, file: Path | None, *, tenant: str, webhook: str, limit: int, after: str) -> DestinationPage:
    found = list[overview.ListedDestination]()
    async with _registry(plan, file) as opened:
        while True:
            page = await overview.of(opened, tenant, webhook=webhook, limit=limit, after=after)
            found += page.destinations
            after = page.after
            if not after or len(found) >= limit:
                return overview.DestinationPage(tuple(found), after)


async def _reseal(plan: Plan, file: Path | None) -> list[str]:
    seen, resealed, after, unreadable = 0, 0, "", list[str]()
    async with _registry(plan, file) as opened:
        while True:
            done = await resealing.reseal(opened, plan, limit=MAX_LISTED, after=after)
            seen, resealed, after = seen + done.seen, resealed + done.resealed, done.after
            unreadable += done.unreadable
            typer.echo(f"{seen} of about {done.registered} looked at, {resealed} sealed anew")
            if not after:
                return unreadable


@asynccontextmanager
async def _registry(plan: Plan, file: Path | None) -> AsyncGenerator[OpenRegistry]:
    """The registry as it is: who looks, or seals anew, binds no plan."""
    deployment = told_in(file) or Deployment.from_env(plan)
    async with aclosing(await RedisStore.connect(deployment)) as store:
        yield OpenRegistry(deployment, store, None)


def _row(each: ListedDestination) -> tuple[str, ...]:
    state: str = each.disabled or ("paused" if each.paused else "")
    if not each.webhook:
        state = "cannot be read: register it again"
    atonce = "" if each.concurrency is None else str(each.concurrency)
    return (each.id, plain(each.tenant or ""), each.webhook, " ".join(each.events), each.profile or "", atonce, state)
