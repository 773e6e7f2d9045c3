"""One delivery's transaction in Django, and the statements on the inbox's table. All of it runs in one thread."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Final

from django.db import DatabaseError, InterfaceError, OperationalError, connections, transaction

from hookline_receiver.errors import InvalidReceiver
from hookline_receiver.ledger.driven import BUSY_PAUSE, HANDLED, IDLE_GRACE, LOCK_TIMEOUT
from hookline_receiver.ledger.passing import driver_error_passes
from hookline_receiver.ledger.protocol import Busy, Conflict, Done

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.db.backends.base.base import BaseDatabaseWrapper

    from hookline_receiver.ledger.protocol import Entry

log = logging.getLogger("hookline.receiver")

VENDORS: Final = ("postgresql", "sqlite")
TABLE: Final = "hookline_inbox"

_INSERT: Final = f"""INSERT INTO {TABLE} ("key", fingerprint, status, recorded_at)
    VALUES (%s, %s, {HANDLED}, CURRENT_TIMESTAMP) ON CONFLICT DO NOTHING"""  # noqa: S608 - constants
_FIND: Final = f'SELECT fingerprint, status FROM {TABLE} WHERE "key" = %s'  # noqa: S608
_RECORD: Final = f'UPDATE {TABLE} SET status = %s WHERE "key" = %s'  # noqa: S608
_OLD: Final = {
    "postgresql": "CURRENT_TIMESTAMP - make_interval(secs => %s)",
    "sqlite": "datetime('now', '-' || %s || ' seconds')",
}


def find(connection: BaseDatabaseWrapper, entry: Entry) -> Done | Conflict | None:
    """How the delivery ended; None while it has not."""
    with connection.cursor() as cursor:
        cursor.execute(_FIND, [entry.key])
        row = cursor.fetchone()
    if row is None:
        return None
    return Done(row[1]) if bytes(row[0]) == entry.fingerprint else Conflict()


def prune(connection: BaseDatabaseWrapper, retention: float, batch: int) -> int:
    """Delete at most `batch` rows older than `retention` seconds, by the database's clock; how many."""
    skip = "FOR UPDATE SKIP LOCKED" if connection.vendor == "postgresql" else ""
    old = _OLD[connection.vendor]
    chosen = f'SELECT "key" FROM {TABLE} WHERE recorded_at < {old} ORDER BY recorded_at LIMIT %s {skip}'  # noqa: S608
    with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        cursor.execute(f'DELETE FROM {TABLE} WHERE "key" IN ({chosen})', [retention, batch])  # noqa: S608
        return int(cursor.rowcount)


def check(connection: BaseDatabaseWrapper) -> None:
    """Read nothing from the table. Raises InvalidReceiver for a database that it cannot work with."""
    if connection.vendor not in VENDORS:
        message = f"a DjangoLedger works with {' and '.join(VENDORS)}, not with {connection.vendor}"
        raise InvalidReceiver(message)
    if connection.settings_dict["NAME"] == ":memory:":  # before it is connected to: Django never closes one
        message = "this SQLite database is another one in each thread: give settings.DATABASES a file as its NAME"
        raise InvalidReceiver(message)
    if not connection.get_autocommit():
        message = "the database has AUTOCOMMIT=False: a DjangoLedger begins and ends transactions as Django does"
        raise InvalidReceiver(message)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT 1 FROM {TABLE} WHERE 1 = 0")  # noqa: S608


def passes(error: BaseException) -> bool:
    """Whether the error is the database's and may be gone at the next attempt."""
    if not isinstance(error, DatabaseError | InterfaceError):
        return False
    known = driver_error_passes(error.__cause__)
    return isinstance(error, OperationalError | InterfaceError) if known is None else known


class DjangoUnit:
    """The row and the handler's writes, in one `atomic` of the connection that the thread has."""

    def __init__(self, alias: str, entry: Entry, deadline: float) -> None:
        self._alias, self._entry, self._idle = alias, entry, deadline + IDLE_GRACE
        self._block: contextlib.ExitStack | None = None

    @property
    def session(self) -> BaseDatabaseWrapper:
        """The connection; models of that database use it by themselves."""
        return connections[self._alias]

    def connect(self) -> None:
        """Have a connection that works."""
        self.session.close_if_unusable_or_obsolete()
        self.session.ensure_connection()

    def begin(self) -> Done | Conflict | Busy | None:
        """Insert the row; None when it is new."""
        self._block = contextlib.ExitStack()
        self._block.enter_context(transaction.atomic(using=self._alias, durable=True))
        with self.session.cursor() as cursor:
            if self.session.vendor == "postgresql":
                limits = {"lock_timeout": LOCK_TIMEOUT, "idle_in_transaction_session_timeout": self._idle}
                for name, seconds in limits.items():
                    cursor.execute("SELECT set_config(%s, %s, true)", [name, f"{seconds * 1000:.0f}"])
                # An insert alone would wait for the other transaction. This waits for nobody, and ends with ours.
                lock = int.from_bytes(self._entry.key[:8], signed=True)
                cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [lock])
                if cursor.fetchone() != (True,):
                    return Busy(BUSY_PAUSE)
            cursor.execute(_INSERT, [self._entry.key, self._entry.fingerprint])
            if cursor.rowcount == 1:
                return None
        return find(self.session, self._entry) or Busy(BUSY_PAUSE)  # of a transaction that our snapshot does not show

    def commit(self, status: int) -> None:
        """Record the status and commit."""
        self._require_row(status)
        self._end()
        self.session.close_if_unusable_or_obsolete()

    def rollback(self) -> None:
        """Roll back, or drop a connection that cannot."""
        self._quietly(self._roll_back)
        self._quietly(self.session.close_if_unusable_or_obsolete)

    def _require_row(self, status: int) -> None:
        # The last statement: Django itself raises here when one has failed before and the handler went on.
        with self.session.cursor() as cursor:
            cursor.execute(_RECORD, [status, self._entry.key])
            if cursor.rowcount != 1:
                message = "the handler ended the delivery's transaction: raise to roll it back"
                raise InvalidReceiver(message)

    def _end(self) -> None:
        block, self._block = self._block, None
        if block is not None:
            block.close()

    def _roll_back(self) -> None:
        if self._block is not None:
            transaction.set_rollback(True, using=self._alias)
            self._end()

    def _quietly(self, step: Callable[[], object]) -> None:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - whatever a broken connection raises: the server rolls back without it
            log.warning("a rollback failed, its connection is dropped: %s", type(error).__name__)
            self._block = None
            with contextlib.suppress(Exception):
                self.session.close()
