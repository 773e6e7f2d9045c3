"""What a replay ledger does: remember, per delivery, who works on it and how it ended.

            claim                            complete
  absent ──────────▶ CLAIMED (fence 1) ──────────────▶ DONE (status)
                      │    ▲
             release  │    │ claim after the lease lapsed: fence + 1
                      ▼    │
                     RELEASED ── claim: fence + 1 ──▶ CLAIMED

Every arrow is one atomic step on the store's own clock. A step sent twice by the same owner changes nothing the second
time and is answered alike, so a step whose answer was lost may be sent again. A row is kept for the retention after its
last transition, a claim at least for its lease; a ledger that is full answers `Full` and never drops a row before that.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from contextlib import AbstractAsyncContextManager

RETENTION = 604_800.0
"""Default life of a row in seconds: seven days, the longest that a delivery may be retried."""
MAX_ROWS = 1_000_000
"""Default limit of live rows."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One delivery at one endpoint. `key` names it and `fingerprint` its body: 32 bytes each."""

    key: bytes
    fingerprint: bytes

    @classmethod
    def of(cls, *names: str, body: bytes) -> Entry:
        """The entry that the names together name; no other list of names has its key."""
        key = hashlib.sha256()
        for name in names:
            text = name.encode("utf-8", "surrogatepass")
            key.update(b"%d:%b" % (len(text), text))
        return cls(key.digest(), hashlib.sha256(body).digest())


@dataclass(frozen=True, slots=True)
class Claimed:
    """The delivery is ours to handle. `fence` grows with each claim of the entry, from 1."""

    entry: Entry
    owner: bytes
    fence: int


@dataclass(frozen=True, slots=True)
class Busy:
    """Someone else handles it now; their claim lapses in `remaining` seconds unless they renew it."""

    remaining: float


@dataclass(frozen=True, slots=True)
class Done:
    """It was handled and answered with `status`."""

    status: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """The same delivery is known with another body."""


@dataclass(frozen=True, slots=True)
class Full:
    """No room for another row; nothing was written."""


Claim = Claimed | Busy | Done | Conflict | Full


class Ledger(Protocol):
    """A store of rows. Every method but `opened` raises LedgerUnavailable when the store cannot be asked."""

    def opened(self) -> AbstractAsyncContextManager[None]:
        """Connect and check the store, and let go of it at the end. May be entered by several receivers at a time.

        Raises LedgerUnavailable, WeakDurability.
        """
        ...

    async def find(self, entry: Entry) -> Done | Conflict | None:
        """How the delivery ended, without claiming it; None while it has not."""
        ...

    async def claim(self, entry: Entry, owner: bytes, lease: float) -> Claim:
        """Take the delivery for `lease` seconds. `owner` is 16 random bytes, new for each request."""
        ...

    async def renew(self, claim: Claimed, lease: float) -> bool:
        """Let the claim last `lease` seconds from now; False when the fence is lost."""
        ...

    async def complete(self, claim: Claimed, status: int) -> bool:
        """Record that it was handled and answered `status`; False when the fence is lost, then nothing is written."""
        ...

    async def release(self, claim: Claimed) -> bool:
        """Give it back to be handled again; False when the fence is lost, then nothing is written."""
        ...


class Transaction(Protocol):
    """One delivery's row and its handler's effects, in one transaction: both are committed, or neither is there.

        connect ─▶ begin ──None──▶ open ──commit──▶ over
                     └─ known, busy ─▶ over └──rollback──▶ over

    Each step ends before the next one is called, and frees everything when it leads to "over", and when it raises.
    `connect` and `begin` raise LedgerUnavailable when the store cannot be asked, `commit` whatever the store says.
    `rollback` does not raise.
    """

    @property
    def threads(self) -> Executor | None:
        """The one thread in which plain functions that use it have to run; None when it is used on the event loop."""
        ...

    @property
    def session(self) -> object:
        """What the handler writes with."""
        ...

    async def connect(self) -> None:
        """Get a connection; may wait for one that is free."""
        ...

    async def begin(self) -> Done | Conflict | Busy | None:
        """Insert the row; None when it is new and the delivery ours to handle."""
        ...

    async def commit(self, status: int) -> None:
        """Record the status and commit. Unless it returns, it is unknown whether both are there: together, or not."""
        ...

    async def rollback(self) -> None:
        """Leave no trace of either."""
        ...


@runtime_checkable
class TransactionalLedger(Protocol):
    """A store in which the row and the handler's effects are one commit. Nothing has a lease, a fence or a release."""

    @property
    def threaded(self) -> bool:
        """Whether handlers have to be plain functions, which run in a thread."""
        ...

    def opened(self) -> AbstractAsyncContextManager[None]:
        """Check the store, and let go of it at the end. May be entered by several receivers at a time.

        Raises LedgerUnavailable.
        """
        ...

    async def find(self, entry: Entry) -> Done | Conflict | None:
        """How the delivery ended; None while it has not. Raises LedgerUnavailable."""
        ...

    def transaction(self, entry: Entry, deadline: float) -> Transaction:
        """A new transaction for the delivery, whose handler is stopped after `deadline` seconds. No I/O."""
        ...

    def passes(self, error: BaseException) -> bool:
        """Whether what a handler or a commit raised is the store's, and may be gone at the next attempt."""
        ...
