"""The queue in your own database: that a delivery is done and what its handler writes are one commit."""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from sqlalchemy import MetaData

from hookline_receiver import answers
from hookline_receiver.errors import InvalidReceiver
from hookline_receiver.ledger.database import Database
from hookline_receiver.ledger.driven import CONNECTIONS
from hookline_receiver.ledger.inbox import ENDED, begin_writing
from hookline_receiver.ledger.protocol import MAX_ROWS, RETENTION, Busy, Full
from hookline_receiver.ledger.pruning import PRUNE_BATCH
from hookline_receiver.ledger.sql_unit import passes
from hookline_receiver.limits import check_seconds, check_whole
from hookline_receiver.queues.protocol import DEAD_RETENTION, Again, Dead, Finished, Queued
from hookline_receiver.queues.statements import DEAD, DONE, QUEUED, Statements, queue_table

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from concurrent.futures import Executor

    from sqlalchemy import Connection, Engine, Table
    from sqlalchemy.ext.asyncio import AsyncEngine

    from hookline_receiver.delivery import Delivery
    from hookline_receiver.ledger.protocol import Conflict, Done, Entry, Transaction
    from hookline_receiver.queues.protocol import Depth, Ending, Known, Record, Taken

COUNT_EVERY: Final = 60.0  # seconds between counts of a receiver's rows; 1 when there is little room left
PRUNE_INTERVAL: Final = 60.0


class SqlQueue:
    """Keeps accepted deliveries in a database, in which their handlers' effects are committed with their end.

    `engine` and `connections` as in SqlLedger: handlers get `delivery.session`, and a Processor runs at most
    `connections` at a time. SQLite has one writer: while a handler runs nothing is accepted for long. `table`: from
    `queue_table(metadata)`; None = "hookline_queue". It has to exist.

    `retention` (seconds): how long a handled delivery is known as a repeat, at least the sender's whole retry and
    redrive horizon. `dead_retention` (seconds): how long a dead letter is kept. About `max_rows` of each receiver are
    kept at most, dead and handled ones included: each process counts now and then. Beyond that deliveries are refused,
    and their sender keeps them. Rows past their retention are deleted in batches every `prune_interval`.
    Safe to share between receivers. No I/O before the first use. Raises InvalidReceiver.
    """

    def __init__(
        self,
        engine: AsyncEngine | Engine,
        *,
        table: Table | None = None,
        retention: float = RETENTION,
        dead_retention: float = DEAD_RETENTION,
        max_rows: int = MAX_ROWS,
        connections: int = CONNECTIONS,
        prune_interval: float = PRUNE_INTERVAL,
    ) -> None:
        check_whole("max_rows", max_rows)
        check_seconds(1, retention=retention, dead_retention=dead_retention)
        check_seconds(prune_interval=prune_interval)
        self._rows = Statements(queue_table(MetaData()) if table is None else table)
        self._database = Database(engine, self._rows.table, connections, "SqlQueue")
        self._retention_ms, self._dead_ms = _ms(retention), _ms(dead_retention)
        self._max_rows, self._prune_interval = max_rows, prune_interval
        self._counts: dict[str, tuple[float, int]] = {}  # of a receiver: when it was counted, and rows since

    def __repr__(self) -> str:
        return repr(self._database)

    @property
    def threaded(self) -> bool:
        """Whether handlers have to be plain functions."""
        return self._database.threaded

    @property
    def connections(self) -> int:
        """How many handlers may run at a time."""
        return self._database.connections

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Check the table, and prune it meanwhile. Raises LedgerUnavailable, InvalidReceiver."""
        prune = partial(self._rows.prune, batch=PRUNE_BATCH)
        async with self._database.opened(self._rows.check, prune, self._prune_interval):
            yield

    async def put(self, name: str, entry: Entry, delivery: Delivery) -> Queued | Known | Conflict | Full:
        """Store the delivery unless it is known."""
        if await self._is_full(name):
            return await self.find(name, entry) or Full()
        put = await self._database.run(partial(self._rows.put, name=name, entry=entry, delivery=delivery))
        if isinstance(put, Queued):
            counted_at, rows = self._counts[name]
            self._counts[name] = counted_at, rows + 1
        return put

    async def find(self, name: str, entry: Entry) -> Known | Conflict | None:
        """What is known of the delivery, without storing it."""
        del name  # the key has it
        return await self._database.run(partial(self._rows.find, entry=entry))

    async def take(self, name: str, owner: bytes, lease: float, limit: int) -> Sequence[Taken]:
        """Up to `limit` due deliveries for `lease` seconds, the longest due first."""
        if not await self._database.run(partial(self._rows.anything_due, name=name)):
            return ()
        take = partial(self._rows.take, name=name, owner=owner, lease_ms=_ms(lease), limit=limit)
        return await self._database.run(take)

    async def renew(self, name: str, taken: Taken, lease: float) -> bool:
        """Let it be ours for `lease` seconds from now; False when the fence is lost."""
        del name
        return await self._database.run(partial(self._rows.renew, taken=taken, lease_ms=_ms(lease)))

    async def settle(self, name: str, taken: Taken, ending: Ending) -> bool:
        """Record how the attempt ended; False when the fence is lost."""
        del name
        settle = partial(self._rows.settle, taken=taken)
        match ending:
            case Finished():
                return await self._database.run(partial(settle, goal=DONE, wait_ms=self._retention_ms))
            case Again(after, reason):
                return await self._database.run(partial(settle, goal=QUEUED, wait_ms=_ms(after), reason=reason))
            case Dead(reason):
                return await self._database.run(partial(settle, goal=DEAD, wait_ms=self._dead_ms, reason=reason))

    def attempt(self, name: str, taken: Taken) -> TakenTransactions:
        """The ledger that the delivery's handler runs with: a transaction of the queue's database."""
        del name
        return TakenTransactions(self._database, _AttemptRows(self._rows, taken, self._retention_ms))

    async def look(self, name: str, key: bytes) -> Record | None:
        """The delivery as it stands."""
        del name
        return await self._database.run(partial(self._rows.look, key=key))

    async def dead_letters(self, name: str, after: tuple[int, bytes], limit: int) -> Sequence[Record]:
        """Dead letters in the order of their deaths, behind the one with that `changed_ms` and key."""
        return await self._database.run(partial(self._rows.dead_letters, name=name, after=after, limit=limit))

    async def redrive(self, name: str, key: bytes) -> bool:
        """Queue a dead letter again, with all its attempts; False when it is none."""
        del name
        return await self._database.run(partial(self._rows.redrive, key=key))

    async def depth(self, name: str) -> Depth:
        """How much there is to do."""
        return await self._database.run(partial(self._rows.depth, name=name))

    async def _is_full(self, name: str) -> bool:
        now, (counted_at, rows) = time.monotonic(), self._counts.get(name, (0.0, 0))
        crowded = rows >= self._max_rows * 9 // 10
        if name not in self._counts or now - counted_at >= (1.0 if crowded else COUNT_EVERY):
            rows = await self._database.run(partial(self._rows.count, name=name))
            self._counts[name] = now, rows
        return rows >= self._max_rows


class _AttemptRows:
    """How the transaction of one attempt begins and ends."""

    def __init__(self, rows: Statements, taken: Taken, keep_ms: int) -> None:
        self._rows, self._taken, self._keep_ms = rows, taken, keep_ms

    def begin(self, connection: Connection, entry: Entry, deadline: float) -> Busy | None:
        """Make it done in this transaction: it can be nobody else's before that is over. None when it is ours."""
        del entry
        begin_writing(connection, deadline)
        return None if self._rows.begin(connection, self._taken, keep_ms=self._keep_ms) else Busy(1.0)

    def record(self, connection: Connection, entry: Entry, status: int) -> None:
        """See that it is still done. Raises InvalidReceiver when the handler ended the transaction."""
        del entry, status
        if not self._rows.end(connection, self._taken):
            raise InvalidReceiver(ENDED)


class TakenTransactions:
    """The ledger of one attempt at a taken delivery. `over` and `finished` as in Attempt."""

    def __init__(self, database: Database, rows: _AttemptRows) -> None:
        self._database, self._rows = database, rows
        self.over = self.finished = False

    @property
    def threaded(self) -> bool:
        """Whether handlers have to be plain functions."""
        return self._database.threaded

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Nothing to open: the processor has opened the queue."""
        yield

    async def find(self, entry: Entry) -> Done | Conflict | None:
        """None: it is not done."""
        del entry
        return None

    def transaction(self, entry: Entry, deadline: float) -> Transaction:
        """A new transaction, whose handler is stopped after `deadline` seconds."""
        return _Watched(self._database.transaction(self._rows, entry, deadline), self)

    def passes(self, error: BaseException) -> bool:
        """Whether the error is the database's and may be gone at the next attempt."""
        return passes(error)


class _Watched:
    """A transaction that tells its attempt how it ended."""

    def __init__(self, transaction: Transaction, attempt: TakenTransactions) -> None:
        self._transaction, self._attempt = transaction, attempt

    @property
    def threads(self) -> Executor | None:
        """The thread in which it runs; None on the loop."""
        return self._transaction.threads

    @property
    def session(self) -> object:
        """What the handler writes with."""
        return self._transaction.session

    async def connect(self) -> None:
        """Get a connection."""
        try:
            await self._transaction.connect()
        except BaseException:
            self._attempt.over = True
            raise

    async def begin(self) -> Done | Conflict | Busy | None:
        """Make the delivery done in it; None when it is ours. When it is not, somebody else has it."""
        try:
            return await self._transaction.begin()
        except BaseException:
            self._attempt.over = True
            raise

    async def commit(self, status: int) -> None:
        """Commit what succeeded; what was rejected for good is left to be given up."""
        try:
            if status in answers.SUCCESS:
                await self._transaction.commit(status)
                self._attempt.finished = True
            else:
                await self._transaction.rollback()
        finally:
            self._attempt.over = True

    async def rollback(self) -> None:
        """Leave no trace."""
        await self._transaction.rollback()
        self._attempt.over = True


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
