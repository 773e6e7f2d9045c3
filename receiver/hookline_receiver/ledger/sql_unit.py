"""One delivery's transaction in SQLAlchemy, and what its errors mean."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sqlalchemy.exc import DBAPIError, InvalidRequestError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from hookline_receiver.errors import InvalidReceiver
from hookline_receiver.ledger.inbox import ENDED
from hookline_receiver.ledger.passing import driver_error_passes

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from sqlalchemy import Connection, Engine

    from hookline_receiver.ledger.protocol import Busy, Conflict, Done, Entry

R = TypeVar("R")
log = logging.getLogger("hookline.receiver")


class ReceiverSession(Session):
    """A session that its user does not commit, and cannot use when it was closed.

    Whatever a handler left running would begin another transaction with it, which nobody ends.
    """

    def __init__(self, bind: Engine, **options: Any) -> None:  # noqa: ANN401 - as AsyncSession calls it
        super().__init__(bind, **options, expire_on_commit=False, close_resets_only=False)

    def commit(self) -> None:
        """Raise InvalidReceiver: a commit of one's own would leave the rest of the handler out."""
        message = (
            "the receiver commits delivery.session when the handler has returned: use flush() to have the database's "
            "answer, or a session of your own with `async with inbox.once(session, delivery) as first`"
        )
        raise InvalidReceiver(message)

    def commit_for_the_receiver(self) -> None:
        """Commit."""
        super().commit()


class Rows(Protocol):
    """The statements with which a delivery's transaction begins and ends."""

    def begin(self, connection: Connection, entry: Entry, deadline: float) -> Done | Conflict | Busy | None:
        """Make the delivery ours to handle for `deadline` seconds; None when it is."""
        ...

    def record(self, connection: Connection, entry: Entry, status: int) -> None:
        """Record that it was handled."""
        ...


class SqlUnit:
    """The row and the handler's session. Plain functions; `session` is the AsyncSession or the Session itself."""

    def __init__(self, rows: Rows, session: AsyncSession | ReceiverSession, entry: Entry, deadline: float) -> None:
        self.session = session
        self._rows, self._entry, self._deadline = rows, entry, deadline

    def connect(self) -> None:
        """Get a connection from the pool."""
        self._plain.connection()

    def begin(self) -> Done | Conflict | Busy | None:
        """Insert the row; None when it is new."""
        return self._rows.begin(self._plain.connection(), self._entry, self._deadline)

    def commit(self, status: int) -> None:
        """Record the status and commit."""
        try:
            connection = self._plain.connection()
        except InvalidRequestError as error:
            raise InvalidReceiver(ENDED) from error
        self._rows.record(connection, self._entry, status)
        self._plain.commit_for_the_receiver()
        self._plain.close()

    def rollback(self) -> None:
        """Roll back, or drop a connection that cannot."""
        try:
            self._plain.close()
        except Exception as error:  # noqa: BLE001 - whatever a broken connection raises: the server rolls back without it
            log.warning("a rollback failed, its connection is dropped: %s", type(error).__name__)
            self._plain.invalidate()

    @property
    def _plain(self) -> ReceiverSession:
        session = self.session
        plain = session.sync_session if isinstance(session, AsyncSession) else session
        if not isinstance(plain, ReceiverSession):
            raise TypeError(plain)
        return plain


class OnLoop:
    """Where an async engine's transaction runs."""

    threads: Executor | None = None

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def run(self, step: Callable[[], R]) -> R:
        """What the step returns."""
        return await self._session.run_sync(lambda _: step())

    def leave(self) -> None:
        """Nothing to give back."""


def passes(error: BaseException) -> bool:
    """Whether the error is the database's and may be gone at the next attempt."""
    if isinstance(error, PoolTimeout):
        return True
    known = driver_error_passes(error.orig if isinstance(error, DBAPIError) else error)
    if known is not None:
        return known
    # A connection that was lost or never made has no state.
    return isinstance(error, OperationalError) or (isinstance(error, DBAPIError) and error.connection_invalidated)
