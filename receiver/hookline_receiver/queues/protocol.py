"""What a queue of accepted deliveries does: keep each one until a processor has handled it, or given it up.

  absent ──put──▶ QUEUED ──take: attempt + 1, fence + 1──▶ RUNNING ──settle──▶ DONE (without its body)
                   ▲  ▲                                     │   └────────────▶ DEAD (reason)
                   │  └── settle: again, later ─────────────┤                   │
                   │  └── the lease lapsed: again, soon ────┘                   │
                   └──────────────────── redrive: attempts 0 ───────────────────┘

Every arrow is one atomic step on the store's own clock. `settle` needs the same owner and fence, and RUNNING; an
attempt that lapsed and was not followed by another can still be finished. Sent twice it changes nothing the second time
and is answered alike. A done row is kept for the retention, so that a repeat is known, a dead one for the dead
retention; what is queued or running is never dropped. A queue that is full refuses. What lapsed together is taken again
at different moments: a delivery that kills its processor does not take the same others along for ever.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol, runtime_checkable

from hookline_receiver.delivery import Delivery
from hookline_receiver.ledger.protocol import Ledger, TransactionalLedger

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from hookline_receiver.ledger.protocol import Conflict, Entry, Full

State = Literal["queued", "running", "done", "dead"]

DEAD_RETENTION: Final = 2_592_000.0
"""Default life of a dead letter in seconds: thirty days."""
SPREAD: Final = 2.0
"""Seconds within which deliveries whose leases lapsed together come back."""
_FIELDS: Final = ("id", "type", "timestamp_ms", "attempt", "traceparent", "content_type")


@dataclass(frozen=True, slots=True)
class Queued:
    """It was not known and is stored now."""


@dataclass(frozen=True, slots=True)
class Known:
    """It was accepted before, and is in `state` now."""

    state: State


@dataclass(frozen=True, slots=True)
class Taken:
    """A delivery that is ours to handle for a lease. `attempts` counts this one; `fence` grows with each."""

    key: bytes
    delivery: Delivery
    owner: bytes
    fence: int
    attempts: int


@dataclass(frozen=True, slots=True)
class Finished:
    """Its handler had its effect."""


@dataclass(frozen=True, slots=True)
class Again:
    """It is to be handled again in `after` seconds. `reason` is a word like `failed`."""

    after: float
    reason: str


@dataclass(frozen=True, slots=True)
class Dead:
    """It was given up. `reason` is a word like `rejected`."""

    reason: str


Ending = Finished | Again | Dead


@dataclass(frozen=True, slots=True)
class Record:
    """An accepted delivery as it stands. Moments are Unix milliseconds by the store's clock.

    `delivery` is None once it is done: then only that it was handled is kept. `reason` is that of the last attempt that
    did not end well. `due_ms`: when it is taken next, or when the running attempt's lease lapses; None when it ended.
    """

    key: bytes
    state: State
    attempts: int
    reason: str
    accepted_ms: int
    changed_ms: int
    due_ms: int | None
    delivery: Delivery | None


@dataclass(frozen=True, slots=True)
class Depth:
    """How many deliveries wait or run, how many are dead, and for how many seconds the longest due one has waited."""

    open: int
    dead: int
    overdue: float


@runtime_checkable
class Queue(Protocol):
    """A store of accepted deliveries, each belonging to the receiver of that `name`.

    Every method that asks it, but `opened`, raises LedgerUnavailable when it cannot be asked. `threaded`: whether
    handlers have to be plain functions, None = they may. `connections`: how many may run at a time, None = any number.
    """

    @property
    def threaded(self) -> bool | None: ...  # noqa: D102 - see above

    @property
    def connections(self) -> int | None: ...  # noqa: D102 - see above

    def opened(self) -> AbstractAsyncContextManager[None]:
        """Connect and check the store, and let go of it at the end. May be entered several times at once.

        Raises LedgerUnavailable, WeakDurability.
        """
        ...

    async def put(self, name: str, entry: Entry, delivery: Delivery) -> Queued | Known | Conflict | Full:
        """Store the delivery unless it is known."""
        ...

    async def find(self, name: str, entry: Entry) -> Known | Conflict | None:
        """What is known of the delivery, without storing it."""
        ...

    async def take(self, name: str, owner: bytes, lease: float, limit: int) -> Sequence[Taken]:
        """Up to `limit` due deliveries for `lease` seconds, the longest due first.

        `owner` is 16 random bytes, new each time. Not to be sent twice: what a call took whose answer was lost lapses.
        """
        ...

    async def renew(self, name: str, taken: Taken, lease: float) -> bool:
        """Let it be ours for `lease` seconds from now; False when the fence is lost."""
        ...

    async def settle(self, name: str, taken: Taken, ending: Ending) -> bool:
        """Record how the attempt ended; False when the fence is lost, then nothing is written."""
        ...

    def attempt(self, name: str, taken: Taken) -> LeasedAttempt | TransactionalAttempt:
        """The ledger that the delivery's handler runs with."""
        ...

    async def look(self, name: str, key: bytes) -> Record | None:
        """The delivery as it stands."""
        ...

    async def dead_letters(self, name: str, after: tuple[int, bytes], limit: int) -> Sequence[Record]:
        """Dead letters in the order of their deaths, behind the one with that `changed_ms` and key."""
        ...

    async def redrive(self, name: str, key: bytes) -> bool:
        """Queue a dead letter again, with all its attempts; False when it is none."""
        ...

    async def depth(self, name: str) -> Depth:
        """How much there is to do."""
        ...


class Attempt(Protocol):
    """What a ledger of one attempt also tells."""

    over: bool
    """Nothing runs for the delivery any more, and nobody else has it."""
    finished: bool
    """It is recorded as done."""


class LeasedAttempt(Ledger, Attempt, Protocol):
    """A ledger whose steps are those of the attempt's lease."""


class TransactionalAttempt(TransactionalLedger, Attempt, Protocol):
    """A ledger whose transactions end the attempt."""


def pack(delivery: Delivery) -> bytes:
    """All of a delivery but its body, in ASCII: a store takes it whatever characters the sender chose."""
    return json.dumps([getattr(delivery, name) for name in _FIELDS], separators=(",", ":")).encode("ascii")


def unpack(envelope: bytes, body: bytes) -> Delivery:
    """The delivery that was packed."""
    return Delivery(**dict(zip(_FIELDS, json.loads(envelope), strict=True)), body=body)
