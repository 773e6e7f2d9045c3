"""The commands of operators: looking at tasks, cancelling and redriving them. No I/O.

    accepted, waiting ── cancel ──▶ cancelled
    running ── cancel ──▶ running, requested ── attempt ends ──▶ completed if it succeeded, else cancelled
    failed ── redrive ──▶ accepted, at the tail of its lane, with new attempts and a new deadline; one that held those
                          behind it (on_dead="block") goes on in its place
    failed ── cancel ───▶ failed, but it holds nobody any more

Asked of a task in any other state, a command changes nothing and answers that state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hookline_sender.engine import codes
from hookline_sender.engine.layout import DELIVERY_ID_LENGTH, LANE_LENGTH, PID_LENGTH, Layout
from hookline_sender.engine.lua import Command, script
from hookline_sender.engine.packing import unpack_trace
from hookline_sender.engine.records import (
    Attempt,
    DeliveryRecord,
    ListedDelivery,
    ListPage,
    Recovery,
    Redriven,
    State,
)
from hookline_sender.errors import NamespaceFull, NotRedrivable, RedisUnavailable, UnknownDelivery

if TYPE_CHECKING:
    from hookline_sender.engine.records import ListRequest

_SCAN = 256  # members one list call looks at
_SET_ASIDE = "its lane in Redis is damaged and was set aside; see the key `broken`"
_WHY_NOT = {
    b"expired": "its retention as a dead letter is over; publish the event again, under a new id",
    b"indeterminate": "nobody knows whether it took effect, and it may then take effect twice: check, and if that is "
    "acceptable, repeat with accept_repeat=True",
    b"gone": "its destination was removed",
    b"unbound": 'the plan has no binding "{0}" any more; add it to the plan and bind that first',
    b"broken": _SET_ASIDE,
}


def inspect(layout: Layout, delivery_id: str) -> Command[DeliveryRecord]:
    """One task as it stands. Its parse raises UnknownDelivery."""

    def parse(raw: list[Any]) -> DeliveryRecord:
        if raw[0] != b"task":
            raise _unknown(layout, delivery_id)
        now, state, flags, attempts, fence, code, status, duration, releases, due, deadline, created = raw[1:13]
        revision, event, trace, binding, destination, history, lease = raw[13:20]
        tenant, event_key, recoveries, failed_at, blocked_by = raw[20:25]
        return DeliveryRecord(
            delivery_id=delivery_id,
            state=State(state),
            cancel_requested=bool(flags & 2),
            attempts=attempts,
            fence=fence,
            code=codes.code_text(code),
            status=status,
            duration_ms=duration,
            releases=releases,
            due_ms=due,
            deadline_ms=deadline,
            created_ms=created,
            revision=_text(revision),
            event=_text(event),
            traceparent=unpack_trace(trace),
            binding=_text(binding),
            destination=_text(destination),
            lease_until_ms=None if lease < 0 else lease,
            now_ms=now,
            history=tuple(_attempt(line) for line in _text(history).splitlines()),
            tenant=_text(tenant),
            event_key=_text(event_key),
            recoveries=tuple(_recovery(line) for line in _text(recoveries).splitlines()),
            failed_at_ms=None if failed_at < 0 else failed_at,
            blocked_by=_text(blocked_by),
        )

    return Command(script("inspect"), (layout.meta,), (_checked(delivery_id),), parse)


def list_(layout: Layout, request: ListRequest) -> Command[ListPage]:
    """One slice of the tasks in a state, newest first. It may be empty and still not be the last."""
    args = (
        int(request.state),
        request.lane,
        request.limit,
        _SCAN,
        *request.place,
        request.since_ms,
        request.until_ms,
        codes.code_byte(request.code) if request.code else -1,
        request.binding,
        request.destination,
        request.tenant,
    )

    def parse(raw: list[Any]) -> ListPage:
        now, place, rows = raw
        return ListPage(now, (_text(place[0]), place[1]) if place else None, tuple(_listed(row) for row in rows))

    return Command(script("list"), (layout.meta,), args, parse)


def cancel(layout: Layout, delivery_id: str) -> Command[State]:
    """End a task that nobody wants any more: how it stands afterwards. RUNNING means that it is requested.

    Its parse raises UnknownDelivery, and RedisUnavailable when the task's lane is damaged.
    """

    def parse(word: bytes) -> State:
        if word == b"unknown":
            raise _unknown(layout, delivery_id)
        if word == b"broken":
            raise RedisUnavailable(f"{delivery_id} cannot be cancelled: {_SET_ASIDE}")
        return State[_text(word).upper()]

    return Command(script("cancel"), (layout.meta,), (_checked(delivery_id),), parse)


def redrive(layout: Layout, delivery_id: str, request_id: str, *, accept_repeat: bool = False) -> Command[Redriven]:
    """Make a dead letter a task again. The same `request_id` does it once.

    Its parse raises UnknownDelivery, NotRedrivable, and NamespaceFull when there is no room for an unfinished task.
    """

    def parse(raw: list[Any]) -> Redriven:
        match raw[0]:
            case b"redriven":
                return Redriven(State.ACCEPTED, raw[1])
            case b"state":
                return Redriven(State[_text(raw[1]).upper()], None)
            case b"unknown":
                raise _unknown(layout, delivery_id)
            case b"full":
                raise NamespaceFull(
                    f"namespace {layout.namespace!r} holds {raw[1]} unfinished tasks and max_records is {raw[2]}: "
                    "redrive when there is room, or raise max_records if Redis has the memory",
                    records=raw[1],
                    limit=raw[2],
                )
            case reason:
                told = "set_aside" if reason == b"broken" else _text(reason)
                raise NotRedrivable(delivery_id, told, _WHY_NOT[reason].format(*map(_text, raw[1:])))

    args = (_checked(delivery_id), request_id, int(accept_repeat))
    return Command(script("redrive"), (layout.meta,), args, parse)


def valid_delivery_id(text: str) -> bool:
    """Whether the text has the shape of a delivery id: publication, then lane."""
    return len(text) == PID_LENGTH + LANE_LENGTH and text.isascii() and text.replace("-", "").replace("_", "").isalnum()


def _checked(delivery_id: str) -> str:
    if not valid_delivery_id(delivery_id):
        raise UnknownDelivery(f"{delivery_id!r} is not a delivery id: those have {DELIVERY_ID_LENGTH} characters")
    return delivery_id


def _unknown(layout: Layout, delivery_id: str) -> UnknownDelivery:
    return UnknownDelivery(
        f"no delivery {delivery_id!r} in namespace {layout.namespace!r}: it never existed or its retention is over"
    )


def _text(raw: bytes) -> str:
    return raw.decode("utf-8")


def _attempt(line: str) -> Attempt:
    number, at_ms, status, code, duration_ms, location, worker = line.split(" ", 6)
    word, path = codes.code_text(int(code)), "" if location == "-" else location
    return Attempt(int(number), int(at_ms), int(status), word, int(duration_ms), worker, path)


def _recovery(line: str) -> Recovery:
    request_id, at_ms, code = line.split(" ", 2)
    return Recovery(request_id, int(at_ms), codes.code_text(int(code)))


def _listed(row: list[Any]) -> ListedDelivery:
    delivery_id, state, attempts, code, status, at, created, due, deadline = row[:9]
    event, tenant, event_key, binding, destination = map(_text, row[9:14])
    return ListedDelivery(
        delivery_id=_text(delivery_id),
        state=State(state),
        attempts=attempts,
        code=codes.code_text(code),
        status=status,
        at_ms=None if at < 0 else at,
        created_ms=created,
        due_ms=due,
        deadline_ms=deadline,
        event=event,
        tenant=tenant,
        event_key=event_key,
        binding=binding,
        destination=destination,
    )
