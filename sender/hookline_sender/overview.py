"""Who is registered in a namespace, or as one tenant: what anybody may read, so without keys to open what is sealed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookline_sender.engine import registry
from hookline_sender.engine.registry import START
from hookline_sender.paging import checked_cursor, checked_limit
from hookline_sender.registration import Subscription, decode_subscription

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hookline_sender.engine.registry import Disabled, Entry
    from hookline_sender.opened import OpenRegistry


@dataclass(frozen=True, slots=True)
class ListedDestination:
    """A registered destination as anybody may read it; the fields mean what they mean in `Destination`.

    webhook: "" when somebody wrote over it in Redis: register it again.
    """

    id: str
    tenant: str | None
    webhook: str
    events: tuple[str, ...]
    profile: str | None
    concurrency: int | None
    paused: bool
    rate: float | None = None
    max_backlog: int | None = None
    disabled: Disabled | None = None


@dataclass(frozen=True, slots=True)
class DestinationPage:
    """Some destinations; maybe none, although more follow. after: what to ask with next; "" when this was the last."""

    destinations: tuple[ListedDestination, ...]
    after: str


async def of(opened: OpenRegistry, tenant: str, *, webhook: str, limit: int, after: str) -> DestinationPage:
    """A page of a tenant's destinations, of all when `tenant` is empty. Raises InvalidQuestion."""
    checked_limit(limit)
    if tenant:
        return await _of_tenant(opened, tenant, webhook=webhook, limit=limit, after=after)
    walked = await opened.run(registry.walk(opened.store.layout, checked_cursor(after, START), limit))
    page = _listed(walked.entries, webhook)
    return DestinationPage(page, "" if walked.cursor == START else walked.cursor)


async def _of_tenant(opened: OpenRegistry, tenant: str, *, webhook: str, limit: int, after: str) -> DestinationPage:
    entries = (await opened.run(registry.tenant_entries(opened.store.layout, tenant))).entries
    follow = sorted((each for each in entries if each.id > after), key=lambda each: each.id)
    found = _listed(((tenant, each) for each in follow), webhook)
    page = found[:limit]
    return DestinationPage(page, page[-1].id if len(found) > limit else "")


def _listed(entries: Iterable[tuple[str, Entry]], webhook: str) -> tuple[ListedDestination, ...]:
    listed = (_described(tenant, entry) for tenant, entry in entries)
    return tuple(each for each in listed if webhook in ("", each.webhook))


def _described(tenant: str, entry: Entry) -> ListedDestination:
    try:
        told = decode_subscription(entry.public)
    except ValueError:
        told = Subscription("", (), None, None)
    return ListedDestination(
        id=entry.id,
        tenant=tenant or None,
        webhook=told.webhook,
        events=told.patterns,
        profile=told.profile,
        concurrency=told.concurrency,
        paused=entry.paused,
        rate=told.rate,
        max_backlog=told.max_backlog,
        disabled=entry.disabled,
    )
