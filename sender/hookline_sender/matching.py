"""Which registered destinations a publication goes to. Decisions only, no I/O.

A publisher remembers tenants as it last saw them. A publication carries the revision it was matched with, and Redis
refuses it as stale when that is not the tenant's revision any more; then the tenant is read and the publication matched
again. So a tenant costs a read when it is new or has changed, and nothing is ever matched by what was true before.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from hookline_sender.engine.records import Target
from hookline_sender.engine.registry import NO_DESTINATIONS, TenantEntries
from hookline_sender.errors import InvalidDestination
from hookline_sender.limits import encode_limits
from hookline_sender.registration import decode_subscription

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hookline_sender.engine.registry import Entry
    from hookline_sender.limits import Limits
    from hookline_sender.plan import Webhook
    from hookline_sender.registration import Destination, Subscription

MATCHES: Final = 16
"""How often a publication is matched before it gives up: each time somebody registered in the middle of it."""
REMEMBERED: Final = 1024
"""Tenants that a publisher remembers."""

_decoded = lru_cache(maxsize=4096)(decode_subscription)


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A registered destination as publications see it."""

    id: str
    lane: str
    version: int
    paused: bool
    subscription: Subscription


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A tenant's destinations at one revision. `loaded`: read from Redis, not only assumed to be none."""

    revision: str
    subscribers: tuple[Subscriber, ...]
    loaded: bool = True
    names: dict[str, tuple[str, str]] = field(init=False, repr=False)  # lane -> binding, destination
    _matched: dict[str, tuple[Target, ...]] = field(
        init=False, repr=False, default_factory=dict[str, "tuple[Target, ...]"]
    )

    def __post_init__(self) -> None:
        names = {each.lane: (each.subscription.webhook, each.id) for each in self.subscribers}
        object.__setattr__(self, "names", names)

    def matching(self, event: str, webhooks: Iterable[Webhook]) -> tuple[Target, ...]:
        """The tasks an event becomes, by the order of `webhooks`, and then by id.

        webhooks: all of the plan's that carry the event and are for subscribers; the answer is kept.
        """
        if event not in self._matched:
            self._matched[event] = tuple(
                target_of(webhook, each)
                for webhook in webhooks
                for each in self.subscribers
                if each.subscription.webhook == webhook.name and each.subscription.carries(event)
            )
        return self._matched[event]


UNKNOWN: Final = Snapshot(NO_DESTINATIONS, (), loaded=False)


class Tenants:
    """The tenants that were seen last, at most 1,024. Safe to use from several threads, and over a fork."""

    def __init__(self, limit: int = REMEMBERED) -> None:
        self._limit = limit
        # Without a lock, which a fork could leave held: whoever misses an entry by a race only reads it again.
        self._known: dict[str, Snapshot] = {}

    def of(self, tenant: str) -> Snapshot:
        """The tenant as it was last seen; without destinations when it was not."""
        found = self._known.pop(tenant, None)
        if found is None:
            return UNKNOWN
        self._known[tenant] = found
        return found

    def learn(self, tenant: str, entries: TenantEntries) -> None:
        """Remember a tenant as it is now, and forget the one that was used longest ago."""
        self._known.pop(tenant, None)
        self._known[tenant] = snapshot_of(entries)
        while len(self._known) > self._limit:
            for oldest in list(self._known)[: len(self._known) - self._limit]:
                self._known.pop(oldest, None)


def snapshot_of(entries: TenantEntries) -> Snapshot:
    """A tenant as the registry describes it. Raises InvalidDestination when one of its entries cannot be read."""
    subscribers = (
        Subscriber(each.id, each.lane, each.version, each.paused, _subscription(each)) for each in entries.entries
    )
    return Snapshot(entries.revision, tuple(sorted(subscribers, key=lambda each: each.id)))


def _subscription(entry: Entry) -> Subscription:
    try:
        return _decoded(entry.public)
    except ValueError:
        # Left out, its events would be lost without a word.
        raise InvalidDestination(
            f"destination {entry.id!r} cannot be read: somebody wrote over it in Redis. Register it again"
        ) from None


def target_of(webhook: Webhook, subscriber: Subscriber) -> Target:
    """The task of one registered destination."""
    return Target(
        lane=subscriber.lane,
        binding=webhook.name,
        destination=subscriber.id,
        ordering=webhook.policy.ordering,
        deadline_ms=round(webhook.policy.deadline * 1000),
        limits=encode_limits(limits_for(webhook, subscriber.subscription)),
        config=subscriber.version,
        paused=subscriber.paused,
    )


def limits_for(webhook: Webhook, own: Subscription | Destination) -> Limits:
    """The limits of a registered destination: its own where it has some. In order of its binding it has one attempt."""
    usual = webhook.limits
    concurrency = None if webhook.policy.ordering == "binding" else own.concurrency
    return replace(
        usual,
        concurrency=usual.concurrency if concurrency is None else concurrency,
        rate=usual.rate if own.rate is None else own.rate,
        max_backlog=usual.max_backlog if own.max_backlog is None else own.max_backlog,
    )
