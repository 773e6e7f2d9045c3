"""The inbox: one row per delivery that was handled, inserted in the transaction that has its effects.

Plain functions on a connection, for both kinds of engine: SQLAlchemy runs them on the event loop as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Index,
    Interval,
    LargeBinary,
    SmallInteger,
    Table,
    delete,
    func,
    literal,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from hookline_receiver.errors import InvalidReceiver
from hookline_receiver.ledger.driven import BUSY_PAUSE, HANDLED, IDLE_GRACE, LOCK_TIMEOUT
from hookline_receiver.ledger.protocol import Busy, Conflict, Done

if TYPE_CHECKING:
    from sqlalchemy import Connection, MetaData

    from hookline_receiver.ledger.protocol import Entry

DIALECTS: Final = ("postgresql", "sqlite")
ENDED: Final = (
    "the handler ended the delivery's transaction: raise to roll it back, and use session.begin_nested() "
    "around what may fail"
)


def inbox_table(metadata: MetaData, name: str = "hookline_inbox") -> Table:
    """The inbox's table in your metadata, for `create_all` or Alembic."""
    return Table(
        name,
        metadata,
        Column("key", LargeBinary(32), primary_key=True),
        Column("fingerprint", LargeBinary(32), nullable=False),
        Column("status", SmallInteger, nullable=False),
        Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.current_timestamp()),
        Index(f"{name}_recorded_at", "recorded_at"),
    )


@dataclass(frozen=True, slots=True)
class Inbox:
    """The statements on one table."""

    table: Table

    def begin(self, connection: Connection, entry: Entry, deadline: float) -> Done | Conflict | Busy | None:
        """Insert the row first in a transaction whose handler is stopped after `deadline` seconds; None when new."""
        begin_writing(connection, deadline)
        return self.enter(connection, entry)

    def enter(self, connection: Connection, entry: Entry) -> Done | Conflict | Busy | None:
        """Insert the row in any transaction; None when it is new."""
        if connection.dialect.name == "postgresql":
            # An insert alone would wait for the other transaction. This waits for nobody, and ends with ours.
            lock = int.from_bytes(entry.key[:8], signed=True)
            if not connection.scalar(select(func.pg_try_advisory_xact_lock(literal(lock, BigInteger)))):
                return Busy(BUSY_PAUSE)
        return self._insert(connection, entry)

    def find(self, connection: Connection, entry: Entry) -> Done | Conflict | None:
        """How the delivery ended; None while it has not."""
        columns = select(self.table.c.fingerprint, self.table.c.status)
        row = connection.execute(columns.where(self.table.c.key == entry.key)).one_or_none()
        if row is None:
            return None
        return Done(row.status) if row.fingerprint == entry.fingerprint else Conflict()

    def record(self, connection: Connection, entry: Entry, status: int) -> None:
        """Give the row its status, as the transaction's last statement.

        Raises InvalidReceiver when the row is gone: what the handler wrote went with it, or would be committed alone.
        PostgreSQL itself raises when a statement has failed before: its COMMIT would roll back and say nothing.
        """
        if status == HANDLED:
            there = connection.scalar(select(self.table.c.status).where(self.table.c.key == entry.key)) is not None
        else:
            changed = update(self.table).where(self.table.c.key == entry.key).values(status=status)
            there = connection.execute(changed).rowcount == 1
        if not there:
            raise InvalidReceiver(ENDED)

    def prune(self, connection: Connection, retention: float, batch: int) -> int:
        """Delete at most `batch` rows older than `retention` seconds, by the database's clock; how many."""
        columns, limit = self.table.c, _ago(connection, retention)
        old = select(columns.key).where(columns.recorded_at < limit).order_by(columns.recorded_at).limit(batch)
        if connection.dialect.name == "postgresql":
            # In a CTE it runs once. Rows that another pruning has are skipped, not waited for.
            old = select(old.with_for_update(skip_locked=True).cte("old").c.key)
        return connection.execute(delete(self.table).where(columns.key.in_(old))).rowcount

    def check(self, connection: Connection) -> None:
        """Read nothing from the table. Raises InvalidReceiver when the engine commits each statement by itself."""
        connection.execute(select(self.table).limit(0))
        if connection.dialect.name == "postgresql":
            name = "hookline.transaction"
            connection.execute(select(func.set_config(name, "on", True)))  # noqa: FBT003 - SQL's own
            if connection.scalar(select(func.current_setting(name, True))) != "on":  # noqa: FBT003 - SQL's own
                message = "the engine is in AUTOCOMMIT: a SqlLedger needs one whose transactions are transactions"
                raise InvalidReceiver(message)

    def _insert(self, connection: Connection, entry: Entry) -> Done | Conflict | Busy | None:
        insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
        row = {"key": entry.key, "fingerprint": entry.fingerprint, "status": HANDLED}
        new = insert(self.table).values(row).on_conflict_do_nothing().returning(self.table.c.status)
        if connection.execute(new).one_or_none() is not None:
            return None
        return self.find(connection, entry) or Busy(BUSY_PAUSE)  # of a transaction that our snapshot does not show


def begin_writing(connection: Connection, deadline: float) -> None:
    """Begin a transaction that waits for nobody for long, and is idle for hardly more than `deadline` seconds."""
    if connection.dialect.name == "sqlite":
        _lock_sqlite(connection)
        return
    limits = {"lock_timeout": LOCK_TIMEOUT, "idle_in_transaction_session_timeout": deadline + IDLE_GRACE}
    connection.execute(select(*(func.set_config(name, f"{s * 1000:.0f}", True) for name, s in limits.items())))  # noqa: FBT003 - SQL's own


def _lock_sqlite(connection: Connection) -> None:
    """Become the one writer before anything is read, unless the engine has begun a transaction in its own way."""
    driver: Any = connection.connection.driver_connection
    if not driver.in_transaction:
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _ago(connection: Connection, seconds: float) -> Any:  # noqa: ANN401 - an expression of the dialect's
    if connection.dialect.name == "sqlite":
        return func.datetime("now", f"-{seconds:f} seconds")
    return func.now() - literal(timedelta(seconds=seconds), Interval)
