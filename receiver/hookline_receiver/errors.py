"""What the receiver raises, and what a handler may raise to choose its answer.

HooklineError
├── Refused                a request that is not an authentic, fresh delivery
├── Reject                 a handler's: the sender should give up
├── RetryLater             a handler's: the sender should come again after a while
├── DeliveryConflict       a delivery is known with another body
├── InvalidReceiver        a declaration of the receiver is out of its range
├── KeysUnavailable        the key source failed or had no key
└── LedgerUnavailable      the ledger cannot be asked
    └── WeakDurability     the ledger's server may forget what it recorded
"""

from __future__ import annotations

import math

from hookline_shared.errors import HooklineError

STALE = "stale"


class Refused(HooklineError):
    """The request is not an authentic, fresh delivery.

    `reason` is one of a fixed set of words (`missing_signature`, `no_matching_signature`, `stale`, …), fit for a
    metric's label. The text adds counts and sizes, never a header's value, a key or the body.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"refused: {reason} ({detail})" if detail else f"refused: {reason}")
        self.reason = reason


class Reject(HooklineError):
    """Answers 422: the sender makes a dead letter of the delivery.

    A redrive runs the handler again, unless `final=True` recorded the rejection in the ledger. The text is logged and
    never sent.
    """

    def __init__(self, text: str = "", *, final: bool = False) -> None:
        super().__init__(text or "the handler rejected the delivery")
        self.final = final


class RetryLater(HooklineError):
    """Answers 503 with `Retry-After`: `after` in seconds, rounded up to whole ones, at least 1."""

    def __init__(self, after: float = 1.0) -> None:
        if not math.isfinite(after) or after < 0:
            msg = "RetryLater(after) needs a finite number of seconds, 0 or more"
            raise ValueError(msg)
        super().__init__(f"the handler asked for a retry after {after:g} s")
        self.after = after


class DeliveryConflict(HooklineError):
    """The delivery is known with another body: answered 409."""

    def __init__(self) -> None:
        super().__init__("the delivery is known with another body")


class InvalidReceiver(HooklineError):
    """A receiver, handler or ledger was declared with a value it cannot work with."""


class KeysUnavailable(HooklineError):
    """The key source failed, took too long or returned no key."""


class LedgerUnavailable(HooklineError):
    """The ledger cannot be reached or refused the step. The delivery is answered 503, never let through unclaimed."""


class WeakDurability(LedgerUnavailable):
    """The server's settings may lose what the ledger acknowledged; `faults` lists them."""

    def __init__(self, message: str, faults: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.faults = faults
