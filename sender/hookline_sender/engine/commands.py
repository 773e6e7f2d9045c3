"""Commands of the engine without I/O: which script, which keys and arguments, and what its answer means.

An async and a sync store run the same commands. Every script sent twice changes nothing and answers alike, unless
`Command.repeat_safe` says otherwise.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from hookline_sender.engine.layout import LAYOUT_VERSION, Layout, aggregate_of
from hookline_sender.engine.lua import Arg, Command, script
from hookline_sender.engine.operations import cancel, inspect, list_, redrive, valid_delivery_id
from hookline_sender.engine.packing import pack_envelope, pack_trace
from hookline_sender.engine.records import Published, PublishRequest
from hookline_sender.engine.turns import turn, unbound
from hookline_sender.errors import IdentityConflict, NamespaceFull, NotGranted, PlanMismatch, StaleRegistry
from hookline_sender.policy import DeliveryPolicy, decode_policy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hookline_sender.policy import Ordering

__all__ = [
    "Command",
    "RevisionUnknown",
    "bind",
    "cancel",
    "inspect",
    "list_",
    "policies",
    "publish",
    "purge",
    "reap",
    "redrive",
    "turn",
    "valid_delivery_id",
]

_MODES: Final[Mapping[Ordering, str]] = {"unordered": "0", "binding": "1", "aggregate": "2"}  # how a lane stores it


class RevisionUnknown(PlanMismatch):
    """The plan is accepted but this revision of its policies is not stored (any more): bind again and repeat."""


def _text(raw: bytes) -> str:
    return raw.decode("utf-8")


def bind(
    layout: Layout,
    *,
    fingerprint: str,
    revision: str,
    bindings: Sequence[tuple[str, str, str]],
    events: Sequence[str],
    may_replace: bool,
    max_records: int,
    retention_ms: int,
    dead_retention_ms: int,
    max_per_destination: int,
    max_dead: int,
) -> Command[None]:
    """Tie the namespace to a plan. `bindings`: (name, signature of kind and ordering, encoded policy).

    may_replace: also when it lacks a binding of the plan before, or has another of that name. Its parse raises
    PlanMismatch, and NotGranted where that would be needed.
    """
    limits = (max_records, retention_ms, dead_retention_ms, max_per_destination, max_dead)
    declared = chain.from_iterable(bindings)
    args: tuple[Arg, ...] = (
        LAYOUT_VERSION,
        fingerprint,
        revision,
        int(may_replace),
        *limits,
        len(bindings),
        *declared,
        *events,
    )

    def parse(raw: list[Any]) -> None:
        match raw[0]:
            case b"bound":
                return
            case b"replaces":
                what = f'binding "{_text(raw[1])}" was {_text(raw[2])}'
                raise NotGranted(f"replacing the plan of namespace {layout.namespace!r} ({what})", "bind:")
            case b"live":
                what = f'binding "{_text(raw[1])}" was {_text(raw[3])} and still has {raw[2]} unfinished tasks'
                raise PlanMismatch(
                    f"namespace {layout.namespace!r} is bound to another plan: {what}; let them finish or cancel them, "
                    "keep the binding, or use another namespace"
                )
            case _:
                raise PlanMismatch(
                    f"namespace {layout.namespace!r} holds layout {_text(raw[1])}, this hookline writes layout "
                    f"{LAYOUT_VERSION}: use another namespace or the hookline version that wrote it"
                )

    return Command(script("bind"), (layout.meta,), args, parse)


def _publish_args(request: PublishRequest) -> tuple[Arg, ...]:
    aggregate = b"\0" * 8 if request.aggregate is None else aggregate_of(request.tenant, request.aggregate[0])
    args: list[Arg] = [
        request.pid,
        request.nonce,
        request.fingerprint,
        request.revision,
        request.digest,
        request.event_index,
        pack_envelope((request.event, request.tenant, request.event_key, request.content_type), request.body),
        pack_trace(request.traceparent),
        request.delay_ms,
        aggregate,
        len(request.tenants),
        *(part for pair in request.tenants for part in pair),
    ]
    for target in request.targets:
        mode = _MODES[target.ordering]
        args += [target.lane, target.binding, target.destination, mode, target.deadline_ms, target.limits]
        args += [target.config, "1" if target.paused else "0"]
    return tuple(args)


def publish(layout: Layout, request: PublishRequest) -> Command[Published]:
    """One publication. Its parse raises IdentityConflict, NamespaceFull, StaleRegistry or PlanMismatch."""

    def parse(raw: list[Any]) -> Published:
        match raw[0]:
            case b"published" | b"duplicate":
                names = {target.lane: (target.binding, target.destination) for target in request.targets}
                lanes, first = tuple(_text(lane) for lane in raw[2:]), raw[1]
                return Published(raw[0] == b"duplicate", lanes[first:], names, lanes[:first])
            case b"conflict":
                raise IdentityConflict(request.event, request.event_key)
            case b"full":
                raise NamespaceFull(
                    f"namespace {layout.namespace!r} holds {raw[1]} unfinished tasks and max_records is {raw[2]}: "
                    "start more workers, or raise max_records if Redis has the memory",
                    records=int(raw[1]),
                    limit=int(raw[2]),
                )
            case b"crowded":
                raise _crowded(*map(_text, raw[1:3]), held=raw[3], limit=raw[4])
            case b"stale":
                raise StaleRegistry(
                    f'"{request.event}" with id {request.event_key!r} was not published: its tenant\'s destinations '
                    "kept changing; publish it again with the same id"
                )
            case b"revision":
                raise RevisionUnknown(f"revision {request.revision} is not stored: bind the plan again")
            case _:
                raise unbound(layout)

    return Command(script("publish"), (layout.meta,), _publish_args(request), parse)


def _crowded(destination: str, setting: str, *, held: int, limit: int) -> NamespaceFull:
    what = {
        "max_per_destination": f'the destination of webhook "{destination}" has {held} tasks, dead letters included',
        "max_backlog": f'the destination of webhook "{destination}" has {held} tasks, dead letters included',
        "max_dead": f'the destination of webhook "{destination}" has {held} dead letters',
    }[setting]
    return NamespaceFull(
        f"{what}, and {setting} is {limit}: see why it is not served, redrive or wait out its dead letters, or raise "
        f"{setting} if Redis has the memory",
        records=held,
        limit=limit,
        destination=destination,
    )


def reap(layout: Layout, *, limit: int = 64) -> Command[int]:
    """Take back lapsed leases; turns do a share of this by themselves."""
    return Command(script("reap"), (layout.meta,), (limit,), int)


def purge(layout: Layout, *, limit: int = 64) -> Command[int]:
    """Free what outlived its retention; turns do a share of this by themselves."""
    return Command(script("purge"), (layout.meta,), (limit,), int)


def policies(layout: Layout, revision: str) -> Command[dict[str, DeliveryPolicy]]:
    """Every binding's policy as it was stored with a plan revision; empty when the revision is not stored."""

    def parse(raw: list[bytes]) -> dict[str, DeliveryPolicy]:
        return {_text(raw[i]): decode_policy(raw[i + 1]) for i in range(0, len(raw), 2)}

    return Command(script("plan"), (layout.meta,), (revision,), parse)
