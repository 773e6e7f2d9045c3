"""The command of workers: settle what ended and claim what is next. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from hookline_sender.engine import codes, registry
from hookline_sender.engine.lua import Arg, Command, script
from hookline_sender.engine.packing import unpack_envelope, unpack_trace
from hookline_sender.engine.records import (
    ClaimedTask,
    Dead,
    Delivered,
    Released,
    Retry,
    Settlement,
    TurnAnswer,
    TurnRequest,
)
from hookline_sender.errors import PlanMismatch

if TYPE_CHECKING:
    from hookline_sender.engine.layout import Layout


def unbound(layout: Layout) -> PlanMismatch:
    """What says that a namespace is not bound to the plan (any more)."""
    return PlanMismatch(
        f"namespace {layout.namespace!r} is not bound to this plan: its data was emptied, or another plan replaced it, "
        "an incompatible one or more than 24 h ago; restart this process to bind it again"
    )


def _settlement_args(settlement: Settlement) -> tuple[Arg, ...]:
    outcome, location = settlement.outcome, ""
    if isinstance(outcome, Released):
        return (settlement.delivery_id, settlement.token, "l", 0, 0, 0, 0, "", 0)
    match outcome:
        case Delivered(status=status):
            kind, code = "o", ""
        case Retry(code=code, status=status):
            kind = "r"
        case Dead(code=code, status=status, location=location):
            kind = "d"
        case _:
            assert_never(outcome)
    duration = min(max(0, outcome.duration_ms), 0xFFFFFFFF)
    return (
        settlement.delivery_id,
        settlement.token,
        kind,
        codes.code_byte(code),
        min(max(0, status), 0xFFFF),
        duration,
        max(0, settlement.delay_ms),
        location,
        -1 if settlement.hold_ms is None else settlement.hold_ms,
    )


def turn(layout: Layout, fingerprint: str, request: TurnRequest) -> Command[TurnAnswer]:
    """Settle and claim. Its parse raises PlanMismatch when the namespace is not bound to the plan (any more)."""
    args: list[Arg] = [
        fingerprint,
        request.worker,
        request.sequence,
        request.token,
        request.slots,
        request.slow_slots,
        int(request.eager),
        request.lease_ms,
        len(request.bindings),
        *request.bindings,
        len(request.settlements),
    ]
    for settlement in request.settlements:
        args += _settlement_args(settlement)

    def parse(raw: list[Any]) -> TurnAnswer:
        if raw[0] != b"turn":
            raise unbound(layout)
        now, words, tasks, publications, soonest, backlog, shift, disabled = raw[1:9]
        bodies: dict[bytes, bytes] = dict(publications)
        claimed, unreadable = list[ClaimedTask](), list[str]()
        for task in tasks:
            try:
                claimed.append(_claimed(task, bodies[task[0]] or b"", now, request.token))
            except ValueError:
                unreadable.append(_text(task[0] + task[1]))
        return TurnAnswer(
            now_ms=now,
            tasks=tuple(claimed),
            settled=tuple(_text(word) for word in words),
            next_due_ms=None if soonest < 0 else soonest,
            backlog=bool(backlog),
            shift_ms=shift,
            unreadable=tuple(unreadable),
            disabled=tuple((_text(b), _text(name), registry.DISABLED[b"%d" % why]) for b, name, why in disabled),
        )

    return Command(script("turn"), (layout.meta,), tuple(args), parse)


def _claimed(task: list[Any], envelope: bytes, now: int, token: bytes) -> ClaimedTask:
    pid, lane, binding, destination, attempt, fence, deadline, revision, trace, lease, config, slow = task
    (event, tenant, event_key, content_type), body = unpack_envelope(envelope)  # raises ValueError
    return ClaimedTask(
        delivery_id=_text(pid + lane),
        binding=_text(binding),
        destination=_text(destination),
        event=event,
        tenant=tenant,
        event_key=event_key,
        content_type=content_type,
        body=body,
        traceparent=unpack_trace(trace),
        attempt=attempt,
        fence=fence,
        revision=_text(revision),
        claimed_at_ms=now,
        deadline_ms=deadline,
        lease_ms=lease,
        token=token,
        config=int(config),
        slow=bool(slow),
    )


def _text(raw: bytes) -> str:
    return raw.decode("utf-8")
