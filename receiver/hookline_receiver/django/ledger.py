"""The ledger in a Django project's database: the row and what a handler writes are one commit."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from django.conf import settings
from django.db import Error
from django.db import connections as databases

from hookline_receiver.django import unit
from hookline_receiver.errors import InvalidReceiver, LedgerUnavailable
from hookline_receiver.ledger.driven import CONNECTIONS, Driven, Share
from hookline_receiver.ledger.lanes import Lanes
from hookline_receiver.ledger.protocol import RETENTION
from hookline_receiver.ledger.pruning import PRUNE_BATCH, PRUNE_INTERVAL, prune_all, pruning
from hookline_receiver.limits import check_seconds, check_whole

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from django.db.backends.base.base import BaseDatabaseWrapper

    from hookline_receiver.ledger.protocol import Conflict, Done, Entry

R = TypeVar("R")
T = TypeVar("T", str, float)


class DjangoLedger:
    """Remembers deliveries in the database that holds their effects: handled exactly once, as far as it reaches.

    Handlers are plain `def` and run inside `transaction.atomic`, in a thread with a connection of its own; they use
    the ORM as ever. PostgreSQL or SQLite. `using`: the database's alias, None = HOOKLINE_INBOX_USING, else "default".
    `connections`: of these threads at a time, at most; SQLite has one writer, so one. Rows older than `retention`
    (seconds; None = HOOKLINE_INBOX_RETENTION, else seven days) are deleted in batches every `prune_interval`, None =
    only by `prune()`. Safe to share between receivers. No I/O before the first use. Raises InvalidReceiver.
    """

    def __init__(
        self,
        *,
        using: str | None = None,
        retention: float | None = None,
        connections: int = CONNECTIONS,
        prune_interval: float | None = PRUNE_INTERVAL,
    ) -> None:
        self._using = _setting("HOOKLINE_INBOX_USING", "default") if using is None else using
        if self._using not in databases:
            message = f'{self._using!r} is none of settings.DATABASES: name one, DjangoLedger(using="default")'
            raise InvalidReceiver(message)
        check_whole("connections", connections)
        self._retention = _setting("HOOKLINE_INBOX_RETENTION", RETENTION) if retention is None else retention
        check_seconds(1, retention=self._retention)
        if prune_interval is not None:
            check_seconds(prune_interval=prune_interval)
        self._prune_interval = prune_interval
        self._connections = connections
        self._share: Share | None = None
        self._lanes = Lanes()

    def __repr__(self) -> str:
        return f"DjangoLedger(using={self._using!r})"

    @property
    def threaded(self) -> bool:
        """Django's transactions belong to threads."""
        return True

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Check the table, and prune it meanwhile. Raises LedgerUnavailable; InvalidReceiver for another database."""
        try:
            await self._run(unit.check)
        except (Error, OSError) as error:
            message = (
                f"the inbox cannot be read ({type(error).__name__}): is the database up, "
                'is "hookline_receiver.django" in INSTALLED_APPS, and was `manage.py migrate` run?'
            )
            raise LedgerUnavailable(message) from error
        with self._lanes.opened():
            async with pruning(self._prune_batch, self._prune_interval, Error, OSError):
                yield

    async def find(self, entry: Entry) -> Done | Conflict | None:
        """How the delivery ended; None while it has not."""
        try:
            return await self._run(partial(unit.find, entry=entry))
        except (Error, OSError) as error:
            message = f"the ledger's database cannot be asked ({type(error).__name__})"
            raise LedgerUnavailable(message) from error

    def transaction(self, entry: Entry, deadline: float) -> Driven:
        """A new transaction for the delivery, whose handler is stopped after `deadline` seconds."""
        if self._share is None:
            self._share = Share(1 if databases[self._using].vendor == "sqlite" else self._connections)
        return Driven(unit.DjangoUnit(self._using, entry, deadline), self._lanes.take, self._share)

    def passes(self, error: BaseException) -> bool:
        """Whether the error is the database's and may be gone at the next attempt."""
        return unit.passes(error)

    async def prune(self) -> int:
        """Delete the rows past the retention, and say how many. Beside deliveries and other prunings, at any time."""
        return await prune_all(self._prune_batch)

    async def _prune_batch(self) -> int:
        return await self._run(partial(unit.prune, retention=self._retention, batch=PRUNE_BATCH))

    async def _run(self, statements: Callable[[BaseDatabaseWrapper], R]) -> R:
        return await self._lanes.run(partial(self._connected, statements))

    def _connected(self, statements: Callable[[BaseDatabaseWrapper], R]) -> R:
        connection = databases[self._using]
        connection.close_if_unusable_or_obsolete()
        try:
            return statements(connection)
        finally:
            connection.close_if_unusable_or_obsolete()


def _setting(name: str, default: T) -> T:
    given: T = getattr(settings, name, default)
    return given
