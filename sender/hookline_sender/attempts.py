"""One attempt of one claimed task: what may still be done with the lease, doing it, and what to settle.

    turn sent            answer received        attempt starts                    believed_until
        ├───────────────────┼──────────────────────┼───── timeout ─────┤                │
        └────────────────────────── lease - margin ─────────────────────────────────────┘

A lease is believed from the moment its turn was sent, because nobody knows when in the round trip Redis granted it,
and less long than it lasts. An attempt whose timeout would reach past that does not start: another worker may own the
task by then.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookline_sender import destinations, webhook
from hookline_sender.engine.records import Dead, Outcome, Released, Retry, Settlement
from hookline_sender.errors import InvalidDeployment, UnknownDestination, UnsafeDestination
from hookline_sender.pacing import PACING
from hookline_sender.trouble import where
from hookline_shared.errors import InvalidSigningKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hookline_sender.deployment import Deployment
    from hookline_sender.destinations import ResolvedDestination
    from hookline_sender.egress.transport import Transport
    from hookline_sender.engine.records import ClaimedTask
    from hookline_sender.plan import Plan
    from hookline_sender.policy import DeliveryPolicy
    from hookline_sender.registered import Registered

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RedisClock:
    """The engine's time as one answer told it, carried on by this process' monotonic clock.

    It decides about deadlines, and is ahead of Redis' own clock by `shift_ms` after that was set back.
    """

    redis_ms: int
    monotonic: float
    shift_ms: int = 0

    def at(self, monotonic: float) -> int:
        """The engine's time in milliseconds at a moment of the monotonic clock."""
        return self.redis_ms + round((monotonic - self.monotonic) * 1000)

    def stamp(self, monotonic: float) -> int:
        """Redis' own time in milliseconds, as a receiver's clock would know it, at a moment of the monotonic clock."""
        return self.at(monotonic) - self.shift_ms


@dataclass(frozen=True, slots=True)
class Claim:
    """A claimed task with all that decides its attempt. `believed_until` is monotonic time."""

    task: ClaimedTask
    policy: DeliveryPolicy
    believed_until: float
    clock: RedisClock

    def timeout(self, now: float) -> float:
        """Seconds an attempt that starts at monotonic `now` may take; not above 0 when the delivery's time is over."""
        return min(self.policy.timeout, (self.task.deadline_ms - self.clock.at(now)) / 1000)

    def refusal(self, now: float) -> Outcome | None:
        """Why no attempt may start at monotonic `now`; None when it may."""
        timeout = self.timeout(now)
        if timeout <= 0:
            return Dead("deadline_exceeded", 0)
        if now + timeout > self.believed_until:
            return Released()
        return None


def settlement(claim: Claim, outcome: Outcome, rand: float) -> Settlement:
    """What to tell the engine: a retry gets its backoff, or is dead if it was the last. `rand`: 0 to below 1."""
    task, delay_ms, hold_ms = claim.task, 0, PACING.hold_ms(None)
    if isinstance(outcome, Retry):
        hold_ms = PACING.hold_ms(outcome.retry_after)
        if task.attempt >= claim.policy.attempts:
            outcome = Dead(outcome.code, outcome.duration_ms, outcome.status)
        else:
            delay = PACING.retry_delay(claim.policy, task.attempt, rand, retry_after=outcome.retry_after)
            delay_ms = round(delay * 1000)
    return Settlement(task.delivery_id, task.token, outcome, delay_ms, hold_ms)


@dataclass(frozen=True, slots=True)
class Attempts:
    """Makes attempts.

    URL and keys of static destinations come from `environ` (None: the process' environment), read anew every time;
    those of registered ones from `registered`.
    """

    plan: Plan
    deployment: Deployment
    transport: Transport
    environ: Mapping[str, str] | None = None
    registered: Registered | None = None

    async def prepare(self, tasks: Iterable[ClaimedTask]) -> None:
        """Read what attempts of `tasks` will need. Raises HooklineError when Redis does not answer."""
        if self.registered is not None:
            await self.registered.load(tasks)

    async def make(self, claim: Claim) -> Outcome:
        """The attempt's outcome, always. Cancelling it is the worker's way to interrupt: that is an outcome as well."""
        begun, started = asyncio.get_running_loop().time(), time.monotonic()
        refused = claim.refusal(started)
        if refused is not None:
            return refused
        sent = _Sent(claim.believed_until)
        try:
            return await self._post(claim, started, begun, sent)
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - one attempt must not end the worker, nor end without an outcome
            return _failed(error, claim.task.delivery_id, sent=bool(sent), duration_ms=_milliseconds_since(started))

    async def _post(self, claim: Claim, started: float, begun: float, sent: _Sent) -> Outcome:
        task = claim.task
        event = self.plan.events.get(task.event)
        destination = self._resolved(task, claim.clock.at(started))
        return await webhook.attempt(
            task,
            destination,
            self.transport,
            timestamp_ms=claim.clock.stamp(started),
            timeout=claim.timeout(started),
            policy=claim.policy,
            started=begun,  # so that no hold-up since the belief was asked makes the attempt outlast it
            on_sent=sent,
            # Of an event that only a newer or an older plan has, nobody here knows whether its body says the name.
            name_event=event is None or event.body != "event",
        )

    def _resolved(self, task: ClaimedTask, now_ms: int) -> ResolvedDestination:
        profile = self.plan.webhooks[task.binding].profile
        if task.config and self.registered is not None:
            return self.registered.resolve(task, profile=profile, now_ms=now_ms)
        return destinations.resolve(self.deployment, task.destination, self.environ, profile=profile)


class _LeaseDoubted(Exception):
    """The first byte of the request was about to be written when the lease was no longer believed."""


class _Sent:
    """Whether any byte of the request may have left. The last look at the lease, right before the first one does."""

    __slots__ = ("_believed_until", "_yes")

    def __init__(self, believed_until: float) -> None:
        self._believed_until, self._yes = believed_until, False

    def __call__(self) -> None:
        if time.monotonic() > self._believed_until:  # the event loop was blocked since the attempt began
            raise _LeaseDoubted
        self._yes = True

    def __bool__(self) -> bool:
        return self._yes


def _failed(error: BaseException, delivery_id: str, *, sent: bool, duration_ms: int) -> Outcome:
    match error:
        case asyncio.CancelledError():
            return Retry("interrupted", duration_ms) if sent else Released()
        case _LeaseDoubted() | UnknownDestination():  # the engine knows what becomes of it
            return Released()
        case InvalidDeployment() | InvalidSigningKey():
            log.warning("%s cannot be delivered yet: %s", delivery_id, error)
            return Retry("misconfigured", duration_ms)
        case UnsafeDestination():
            log.warning("%s cannot be delivered yet: %s", delivery_id, error)
            return Retry("unsafe_address", duration_ms)
        case _:
            log.error("the attempt of %s failed inside hookline: %s", delivery_id, where(error))
            return Retry("internal_error", duration_ms)


def _milliseconds_since(started: float) -> int:
    return round((time.monotonic() - started) * 1000)
