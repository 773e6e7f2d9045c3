"""The last revision of each aggregate that was applied, in the transaction that applies it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, overload

from sqlalchemy import BigInteger, Column, Connection, MetaData, String, Table, and_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from hookline_receiver.errors import InvalidReceiver, Reject
from hookline_receiver.ledger.inbox import DIALECTS
from hookline_receiver.revisions import Next, judge

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sqlalchemy.orm import Session

    from hookline_receiver.revisions import Standing
    from hookline_shared.event import DomainEvent, DomainEventRef

    AnySession = Session | Connection
    AnyAsyncSession = AsyncSession | AsyncConnection
    Event = DomainEvent[Any] | DomainEventRef

LONGEST: Final = 256  # characters of an aggregate's id, as senders may have them
LARGEST: Final = 2**63 - 1
_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")  # PostgreSQL has no NUL, UTF-8 no half of a surrogate pair


def revision_table(metadata: MetaData, name: str = "hookline_revision") -> Table:
    """The table of revisions in your metadata, for `create_all` or Alembic."""
    return Table(
        name,
        metadata,
        Column("kind", String(255), primary_key=True),
        Column("aggregate_id", String(LONGEST), primary_key=True),
        Column("revision", BigInteger, nullable=False),
    )


class SqlRevisions:
    """Applies the events of each aggregate in the order of their revisions.

    `kind` tells aggregates apart whose ids may be alike, as those of orders and customers. `first` is the revision of
    an aggregate's first event. `table`: from `revision_table(metadata)`; None = "hookline_revision". It has to exist.
    For PostgreSQL and SQLite. No I/O before the first use.
    """

    def __init__(self, kind: str, *, first: int = 1, table: Table | None = None) -> None:
        self._kind, self._before = kind, first - 1
        self._table = revision_table(MetaData()) if table is None else table

    def __repr__(self) -> str:
        return f"SqlRevisions({self._kind!r})"

    @overload
    def check(self, session: AnyAsyncSession, event: Event) -> Awaitable[Standing]: ...
    @overload
    def check(self, session: AnySession, event: Event) -> Standing: ...

    def check(self, session: AnyAsyncSession | AnySession, event: Event) -> Awaitable[Standing] | Standing:
        """How the event stands to what was applied; `await` it with an AsyncSession.

        With Next its revision is recorded in the session's transaction; with anything else nothing is. The aggregate's
        row stays locked until the transaction ends: events of one aggregate wait for each other, others do not.
        Raises Reject for an event that names no aggregate and revision: it can never be put in order.
        """
        aggregate_id, revision = _named(event)
        if isinstance(session, AsyncSession | AsyncConnection):
            return session.run_sync(lambda plain: self._check(_connection(plain), aggregate_id, revision))
        return self._check(_connection(session), aggregate_id, revision)

    @overload
    def set(self, session: AnyAsyncSession, aggregate_id: str, revision: int) -> Awaitable[None]: ...
    @overload
    def set(self, session: AnySession, aggregate_id: str, revision: int) -> None: ...

    def set(self, session: AnyAsyncSession | AnySession, aggregate_id: str, revision: int) -> Awaitable[None] | None:
        """Record that the aggregate was brought to that revision, as after fetching it whole; `await` as in `check`.

        It never goes back: an older copy does not make applied events new again.
        """
        if isinstance(session, AsyncSession | AsyncConnection):
            return session.run_sync(lambda plain: self._set(_connection(plain), aggregate_id, revision))
        self._set(_connection(session), aggregate_id, revision)
        return None

    def _check(self, connection: Connection, aggregate_id: str, revision: int) -> Standing:
        known = self._locked(connection, aggregate_id)
        standing = judge(known, revision)
        if isinstance(standing, Next):
            connection.execute(update(self._table).where(self._of(aggregate_id)).values(revision=revision))
        return standing

    def _set(self, connection: Connection, aggregate_id: str, revision: int) -> None:
        if self._locked(connection, aggregate_id) < revision:
            connection.execute(update(self._table).where(self._of(aggregate_id)).values(revision=revision))

    def _locked(self, connection: Connection, aggregate_id: str) -> int:
        """The last revision; the row is there and ours. Inserted first, or two could find it absent."""
        dialect = connection.dialect.name
        if dialect not in DIALECTS:
            message = f"SqlRevisions works with {' and '.join(DIALECTS)}, not with {dialect}"
            raise InvalidReceiver(message)
        insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
        row = {"kind": self._kind, "aggregate_id": aggregate_id, "revision": self._before}
        connection.execute(insert(self._table).values(row).on_conflict_do_nothing())
        found = select(self._table.c.revision).where(self._of(aggregate_id)).with_for_update()
        return int(connection.execute(found).scalar_one())

    def _of(self, aggregate_id: str) -> Any:  # noqa: ANN401 - an expression
        return and_(self._table.c.kind == self._kind, self._table.c.aggregate_id == aggregate_id)


def _connection(session: AnySession) -> Connection:
    return session if isinstance(session, Connection) else session.connection()


def _named(event: Event) -> tuple[str, int]:
    aggregate_id, revision = event.aggregate_id, event.aggregate_revision
    if not aggregate_id or revision is None:
        message = "the event names no aggregate and revision, so it cannot be put in order"
        raise Reject(message)
    if len(aggregate_id) > LONGEST or _UNSTORABLE.search(aggregate_id) or not -LARGEST - 1 <= revision <= LARGEST:
        message = "the event's aggregate has an id or a revision that no table takes"
        raise Reject(message)
    return aggregate_id, revision
