"""Commands of the registry without I/O: who may be sent what, tenant by tenant.

A tenant has a revision, which every change of one of its destinations moves; a destination has a version, which a
change of its settings or keys moves. Neither ever comes back, so both may be remembered: `0` is the revision of a
tenant without destinations. What a destination is, is opaque here: a text anybody may read, and one that is sealed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from hookline_sender.engine.lua import Command, script
from hookline_sender.errors import DestinationBusy, InvalidDestination, PlanMismatch, UnknownDestination
from hookline_shared.errors import HooklineError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hookline_sender.engine.layout import Layout

NO_DESTINATIONS = "0"
"""The revision of a tenant that has no destinations."""
START = "0"
"""Where a walk through all destinations begins."""

Disabled = Literal["gone", "failing"]
DISABLED: Final[Mapping[bytes, Disabled]] = {b"2": "gone", b"3": "failing"}
"""Why a destination is paused that nobody paused: it answered 410, or has failed for too long."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A destination as anybody may read it. `version` grows with every change of its settings or keys.

    disabled: why it is paused, when nobody paused it.
    """

    id: str
    version: int
    paused: bool
    lane: str
    public: str
    disabled: Disabled | None = None


@dataclass(frozen=True, slots=True)
class TenantEntries:
    """A tenant's destinations at one revision."""

    revision: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """A destination with what is sealed, and whose it is."""

    tenant: str
    entry: Entry
    sealed: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Lookup:
    """Destinations by id at a moment; None for one that is not registered.

    now_ms: the engine's time. stamp_ms: Redis' own, which is behind it after it was set back.
    """

    now_ms: int
    stamp_ms: int
    found: tuple[Found | None, ...]


@dataclass(frozen=True, slots=True)
class Walked:
    """A step of a walk through the namespace's destinations, in no order.

    entries: with the tenant of each. registered: about how many there are. cursor: where the next step begins; START
    when this was the last.
    """

    entries: tuple[tuple[str, Entry], ...]
    registered: int
    cursor: str


@dataclass(frozen=True, slots=True)
class Resealing:
    """What is sealed of a destination, and what shall be."""

    id: str
    before: bytes = field(repr=False)
    after: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Draft:
    """What a destination shall be. `decided_on`: the tenant's revision, or the destination's version, that was seen."""

    id: str
    tenant: str
    lane: str
    limits: str
    public: str
    sealed: bytes = field(repr=False)
    decided_on: str


class Changed(HooklineError):
    """Somebody else changed what the draft was decided on: look again and repeat."""


def tenant_entries(layout: Layout, tenant: str) -> Command[TenantEntries]:
    """The destinations of a tenant; those without a tenant are those of the empty one."""

    def parse(raw: list[bytes]) -> TenantEntries:
        pairs = zip(raw[1::2], raw[2::2], strict=True)
        return TenantEntries(
            raw[0].decode(), tuple(_listed(id_.decode("utf-8", "replace"), text) for id_, text in pairs)
        )

    return Command(script("registry"), (layout.meta,), (tenant,), parse)


def lookup(layout: Layout, ids: Sequence[str]) -> Command[Lookup]:
    """Destinations by id, in the order of `ids`. One that somebody wrote over counts as not registered."""

    def parse(raw: list[Any]) -> Lookup:
        return Lookup(raw[0], raw[1], tuple(_found(id_, each) for id_, each in zip(ids, raw[2:], strict=True)))

    return Command(script("lookup"), (layout.meta,), tuple(ids), parse)


def walk(layout: Layout, cursor: str, count: int) -> Command[Walked]:
    """About `count` of the namespace's destinations, from `cursor` on; all at once of a small one.

    Who is registered all through a walk is met at least once, maybe twice.
    """

    def parse(raw: list[Any]) -> Walked:
        triples = zip(raw[2::3], raw[3::3], raw[4::3], strict=True)
        entries = ((tenant.decode(), _listed(id_.decode(), text)) for id_, tenant, text in triples)
        return Walked(tuple(entries), raw[1], raw[0].decode())

    return Command(script("destinations"), (layout.meta,), (cursor, count), parse)


def reseal(layout: Layout, changes: Sequence[Resealing]) -> Command[tuple[int, ...]]:
    """Put what is sealed anew in its place: the numbers of those that somebody changed meanwhile, which stay."""
    args = tuple(part for each in changes for part in (each.id, each.before, each.after))
    return Command(script("reseal"), (layout.meta,), args, tuple)


def register(layout: Layout, fingerprint: str, draft: Draft) -> Command[Entry]:
    """Register a destination, or register it anew.

    Its parse raises Changed, DestinationBusy, InvalidDestination (the id is another tenant's or webhook's) and
    PlanMismatch.
    """
    args = (
        fingerprint,
        draft.id,
        draft.tenant,
        draft.decided_on,
        draft.lane,
        draft.limits,
        draft.public,
        draft.sealed,
    )
    return Command(script("register"), (layout.meta,), args, lambda raw: _written(layout, draft, raw))


def configure(layout: Layout, fingerprint: str, draft: Draft) -> Command[Entry]:
    """Change a registered destination. Its parse raises Changed, UnknownDestination, PlanMismatch."""
    args = (fingerprint, draft.id, draft.decided_on, draft.limits, draft.public, draft.sealed)
    return Command(script("configure"), (layout.meta,), args, lambda raw: _written(layout, draft, raw))


def remove(layout: Layout, id: str) -> Command[int]:  # noqa: A002 - the public name
    """Remove a destination: how many of its tasks are left to cancel or finish. Its parse raises UnknownDestination."""

    def parse(raw: list[Any]) -> int:
        if raw[0] != b"removed":
            raise UnknownDestination(id)
        return int(raw[1])

    return Command(script("remove"), (layout.meta,), (id,), parse)


def set_paused(layout: Layout, id: str, *, paused: bool, lane: str = "") -> Command[None]:  # noqa: A002 - the public name
    """Pause or resume a destination. Its parse raises UnknownDestination.

    lane: of a static destination, which can only be resumed.
    """

    def parse(raw: list[bytes]) -> None:
        if raw[0] != b"set":
            raise UnknownDestination(id)

    args = (id,) if paused else (id, lane)
    return Command(script("pause" if paused else "resume"), (layout.meta,), args, parse)


def _listed(id: str, text: bytes) -> Entry:  # noqa: A002 - the field's name
    try:
        return _entry(id, text)
    except ValueError:  # somebody wrote over it: whoever reads the public text notices, and knows the id
        return Entry(id, 0, paused=False, lane="", public="")


def _found(id: str, stored: list[bytes]) -> Found | None:  # noqa: A002 - the field's name
    if not stored:
        return None
    tenant, public, sealed = stored
    try:
        return Found(tenant.decode(), _entry(id, public), sealed)
    except ValueError:
        return None


def _entry(id: str, text: bytes) -> Entry:  # noqa: A002 - the field's name
    version, paused, lane, public = text.split(b" ", 3)
    return Entry(id, int(version), paused != b"0", lane.decode(), public.decode(), DISABLED.get(paused))


def _written(layout: Layout, draft: Draft, raw: list[Any]) -> Entry:
    match raw[0]:
        case b"registered" | b"configured":
            return Entry(draft.id, int(raw[1]), raw[2] != b"0", draft.lane, draft.public, DISABLED.get(raw[2]))
        case b"changed":
            raise Changed(f"destination {draft.id!r} or its tenant was changed meanwhile: look again and repeat")
        case b"unknown":
            raise UnknownDestination(draft.id)
        case b"busy":
            raise DestinationBusy(draft.id, int(raw[1]))
        case b"owned":
            raise InvalidDestination(
                f"destination {draft.id!r} belongs to another tenant: ids are unique in the namespace, use another one"
            )
        case b"webhook":
            raise InvalidDestination(
                f"destination {draft.id!r} belongs to another webhook: remove it first, or register another id"
            )
        case _:
            raise PlanMismatch(
                f"namespace {layout.namespace!r} is not bound to this plan: its data was emptied, or another plan "
                "replaced it, an incompatible one or more than 24 h ago; restart this process to bind it again"
            )
