"""Ledgers that lose what a handler did, at the last moment: what a crash or a refused commit leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hookline_receiver.ledger.protocol import TransactionalLedger

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from contextlib import AbstractAsyncContextManager

    from hookline_receiver.ledger.protocol import Claim, Claimed, Conflict, Done, Entry, Ledger, Transaction


class Lost(Exception):
    """The handler ran, and nothing was recorded."""


@dataclass
class Losses:
    """How many of the next deliveries are lost. `retried`: as the store refuses a commit, and not as a crash."""

    left: int = 0
    retried: bool = False

    def lose(self) -> bool:
        """Whether this one is."""
        self.left -= 1
        return self.left >= 0


def failing(ledger: Ledger | TransactionalLedger, losses: Losses) -> Ledger | TransactionalLedger:
    """The ledger, but for the losses."""
    return (
        FailingTransactions(ledger, losses)
        if isinstance(ledger, TransactionalLedger)
        else FailingClaims(ledger, losses)
    )


class _Failing:
    def __init__(self, ledger: Any, losses: Losses) -> None:  # noqa: ANN401 - either kind
        self._ledger, self._losses = ledger, losses

    def opened(self) -> AbstractAsyncContextManager[None]:
        """As the ledger's."""
        opened: AbstractAsyncContextManager[None] = self._ledger.opened()
        return opened

    async def find(self, entry: Entry) -> Done | Conflict | None:
        """As the ledger's."""
        found: Done | Conflict | None = await self._ledger.find(entry)
        return found


class FailingClaims(_Failing):
    """A ledger of claims. A lost delivery's claim is one that lapsed."""

    _ledger: Ledger

    async def claim(self, entry: Entry, owner: bytes, lease: float) -> Claim:
        """As the ledger's."""
        return await self._ledger.claim(entry, owner, lease)

    async def renew(self, claim: Claimed, lease: float) -> bool:
        """As the ledger's."""
        return await self._ledger.renew(claim, lease)

    async def complete(self, claim: Claimed, status: int) -> bool:
        """As the ledger's; raises Lost."""
        if self._losses.lose():
            await self._ledger.release(claim)
            raise Lost
        return await self._ledger.complete(claim, status)

    async def release(self, claim: Claimed) -> bool:
        """As the ledger's."""
        return await self._ledger.release(claim)


class FailingTransactions(_Failing):
    """A ledger of transactions. A lost delivery's is rolled back."""

    _ledger: TransactionalLedger

    @property
    def threaded(self) -> bool:
        """As the ledger's."""
        return self._ledger.threaded

    def transaction(self, entry: Entry, deadline: float) -> Transaction:
        """As the ledger's; its commit may raise Lost."""
        return _FailingTransaction(self._ledger.transaction(entry, deadline), self._losses)

    def passes(self, error: BaseException) -> bool:
        """As the ledger's."""
        return self._losses.retried if isinstance(error, Lost) else self._ledger.passes(error)


class _FailingTransaction:
    def __init__(self, transaction: Transaction, losses: Losses) -> None:
        self._transaction, self._losses = transaction, losses
        self.connect, self.begin, self.rollback = transaction.connect, transaction.begin, transaction.rollback

    @property
    def threads(self) -> Executor | None:
        return self._transaction.threads

    @property
    def session(self) -> object:
        return self._transaction.session

    async def commit(self, status: int) -> None:
        if self._losses.lose():
            await self._transaction.rollback()
            raise Lost
        await self._transaction.commit(status)
