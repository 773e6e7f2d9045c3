"""How often, how long and how patiently one webhook's deliveries are attempted: pure functions of their arguments.

    publish ── attempt 1 ──✗── backoff ── attempt 2 ──✗── 2 × backoff ── attempt 3 ── … ── attempt `attempts`
       └──────────────────────────────── deadline ────────────────────────────────────────────┘

A task keeps the policy it was published under.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Literal, cast, get_args

from hookline_sender.errors import InvalidPlan
from hookline_sender.ranges import fault

Ordering = Literal["unordered", "binding", "aggregate"]
OnDead = Literal["skip", "block"]

SHORT_PATIENCE: Final = 120.0
"""Seconds of backoff under which a policy warns: a receiver's deploy takes about as long."""


class HooklineWarning(UserWarning):
    """A declaration that is allowed and probably not meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPolicy:
    """The retry rules of one webhook; times in seconds. The defaults retry for 6.4 hours.

    attempts: 1-16, the first one included.
    backoff: wait after the first failed attempt; doubles after each further one, up to `max_backoff` (at most 1 h).
    jitter: 0-1, the share of a wait by which it is randomly shortened or lengthened; 1 spreads over the whole wait.
    deadline: at most 7 days from publish, delay and retries included.
    timeout: at most 30 s for one attempt, from connecting to the end of the answer.
    replay_window: freshness promised to receivers; above `timeout`, or a slow attempt would arrive stale.
    retry_statuses: 4xx statuses to retry besides 429 and 5xx, which always are.
    ordering: "binding" delivers one at a time in publish order, "aggregate" one at a time of each aggregate id, while
        different aggregates, and events without one, do not wait for each other.
    on_dead: whether a dead letter of an ordered webhook lets those behind it go on ("skip"), or holds them until it
        is redriven, cancelled or expires ("block").

    Raises InvalidPlan; warns HooklineWarning when the waits add up to less than two minutes.
    """

    attempts: int = 16
    backoff: float = 5.0
    max_backoff: float = 3600.0
    jitter: float = 0.1
    deadline: float = 86_400.0
    timeout: float = 10.0
    replay_window: float = 300.0
    retry_statuses: tuple[int, ...] = ()
    ordering: Ordering = "unordered"
    on_dead: OnDead = "skip"

    def __post_init__(self) -> None:
        object.__setattr__(self, "retry_statuses", _statuses(self.retry_statuses))
        _check(self)
        if total_backoff(self) < SHORT_PATIENCE:
            warnings.warn(
                f"this policy gives up after {total_backoff(self):g} s of backoff, which a receiver's deploy would "
                f"outlast: raise attempts or backoff until they add up to {SHORT_PATIENCE:g} s",
                HooklineWarning,
                stacklevel=3,
            )


def next_delay(policy: DeliveryPolicy, attempt: int, rand: float, retry_after: float | None = None) -> float:
    """Seconds to wait after failed attempt number `attempt` (from 1).

    `rand` in [0, 1) picks the place inside the jitter. `retry_after` (seconds, from the destination) can only
    lengthen the wait. Never above `max_backoff`.

    >>> [next_delay(DeliveryPolicy(jitter=0.0), n, 0.5) for n in (1, 2, 3, 15)]
    [5.0, 10.0, 20.0, 3600.0]
    >>> next_delay(DeliveryPolicy(jitter=0.0), 1, 0.5, retry_after=60)
    60.0
    """
    base = _base_delay(policy, attempt)
    shortest = base * (1.0 - policy.jitter)
    # Spreading between the two bounds, and not clipping at the cap, keeps a herd spread out at the cap too.
    longest = min(base * (1.0 + policy.jitter), policy.max_backoff)
    delay = shortest + (longest - shortest) * rand
    if retry_after is not None and retry_after > delay:
        return float(min(retry_after, policy.max_backoff))
    return delay


def total_backoff(policy: DeliveryPolicy) -> float:
    """Seconds that all waits of the policy add up to, without jitter."""
    return sum(_base_delay(policy, attempt) for attempt in range(1, policy.attempts))


def encode_policy(policy: DeliveryPolicy) -> str:
    """The policy as canonical JSON, the same text for equal policies."""
    return json.dumps(asdict(policy), sort_keys=True, separators=(",", ":"))


def decode_policy(text: str | bytes) -> DeliveryPolicy:
    """The policy of `encode_policy`'s text. Fields of a newer release are skipped, missing ones take the default.

    Does not warn: whoever declared the policy was told. Raises InvalidPlan when the text is no policy.
    """
    try:
        stored: Any = json.loads(text)
    except ValueError:
        stored = None
    if not isinstance(stored, dict):
        raise InvalidPlan("a stored policy is not a JSON object")
    values = cast("dict[str, Any]", stored)
    policy = object.__new__(DeliveryPolicy)
    for field in fields(DeliveryPolicy):
        value = values.get(field.name, field.default)
        object.__setattr__(policy, field.name, _statuses(value) if field.name == "retry_statuses" else value)
    _check(policy)
    return policy


def _base_delay(policy: DeliveryPolicy, attempt: int) -> float:
    # The exponent is capped because 2.0 ** 1024 raises.
    return min(policy.backoff * 2.0 ** min(max(attempt, 1) - 1, 64), policy.max_backoff)


def _check(policy: DeliveryPolicy) -> None:
    if type(policy.attempts) is not int:
        raise InvalidPlan(f"attempts is a whole number, not {policy.attempts!r}")
    _in_range("attempts", policy.attempts, 1, 16)
    _in_range("backoff", policy.backoff, 0.001, 3600.0)
    _in_range("max_backoff", policy.max_backoff, policy.backoff, 3600.0)
    _in_range("jitter", policy.jitter, 0.0, 1.0)
    _in_range("deadline", policy.deadline, 0.001, 7 * 86_400.0)
    _in_range("timeout", policy.timeout, 0.001, 30.0)
    _in_range("replay_window", policy.replay_window, 0.001, 86_400.0)
    if policy.timeout >= policy.replay_window:
        raise InvalidPlan(
            f"timeout={policy.timeout:g} is not below replay_window={policy.replay_window:g}: "
            "an attempt could arrive when its signature is already stale"
        )
    if policy.ordering not in get_args(Ordering):
        raise InvalidPlan(f"ordering={policy.ordering!r} is none of {', '.join(get_args(Ordering))}")
    if policy.on_dead not in get_args(OnDead):
        raise InvalidPlan(f"on_dead={policy.on_dead!r} is none of {', '.join(get_args(OnDead))}")
    if policy.on_dead == "block" and policy.ordering == "unordered":
        raise InvalidPlan(
            'on_dead="block" needs an ordering: nothing waits behind a dead letter of an unordered webhook'
        )


def _statuses(given: object) -> tuple[int, ...]:
    listed = isinstance(given, Iterable)
    statuses: tuple[object, ...] = tuple(cast("Iterable[object]", given)) if listed else (given,)
    numbers = [each for each in statuses if isinstance(each, int) and each in range(400, 600)]
    if len(numbers) != len(statuses):
        raise InvalidPlan("retry_statuses are whole numbers from 400 to 599: nothing else can be retried")
    return tuple(sorted(set(numbers)))


def _in_range(name: str, value: object, low: float, high: float) -> None:
    if wrong := fault(name, value, low, high):
        raise InvalidPlan(wrong)
