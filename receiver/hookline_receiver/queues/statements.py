"""The queue's table, and its statements: plain functions on a connection, for both kinds of engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    String,
    Table,
    and_,
    cast,
    delete,
    func,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from hookline_receiver.ledger.inbox import begin_writing
from hookline_receiver.ledger.protocol import Conflict
from hookline_receiver.queues.protocol import SPREAD, Depth, Known, Queued, Record, Taken, pack, unpack

if TYPE_CHECKING:
    from sqlalchemy import Connection, MetaData, Select

    from hookline_receiver.delivery import Delivery
    from hookline_receiver.ledger.protocol import Entry
    from hookline_receiver.queues.protocol import State

QUEUED, RUNNING, DONE, DEAD = 1, 2, 3, 4
STATES: Final[dict[int, State]] = {QUEUED: "queued", RUNNING: "running", DONE: "done", DEAD: "dead"}
PATIENCE: Final = 5.0  # seconds that a short transaction may be idle
REAPED: Final = 64  # lapsed attempts that one call queues again


def queue_table(metadata: MetaData, name: str = "hookline_queue") -> Table:
    """The queue's table in your metadata, for `create_all` or Alembic. Moments are Unix milliseconds."""
    table = Table(
        name,
        metadata,
        Column("key", LargeBinary(32), primary_key=True),
        Column("receiver", String(255), nullable=False),
        Column("fingerprint", LargeBinary(32), nullable=False),
        Column("state", SmallInteger, nullable=False),  # 1 queued, 2 running, 3 done, 4 dead
        Column("attempts", Integer, nullable=False),
        Column("fence", Integer, nullable=False),
        Column("owner", LargeBinary(16), nullable=False),
        Column("reason", String(64), nullable=False),
        Column("accepted_ms", BigInteger, nullable=False),
        Column("changed_ms", BigInteger, nullable=False),
        Column("due_ms", BigInteger, nullable=False),  # to be taken; the lease's end; to be deleted
        Column("envelope", LargeBinary),
        Column("body", LargeBinary),
    )
    # Partial, so that looking for work stays as quick as there is little of it, however many rows have ended.
    unended, ended = text("state < 3"), text("state > 2")
    Index(f"{name}_open", "receiver", "due_ms", postgresql_where=unended, sqlite_where=unended, _table=table)
    Index(f"{name}_ended", "due_ms", postgresql_where=ended, sqlite_where=ended, _table=table)
    dead = text("state = 4")
    Index(f"{name}_dead", "receiver", "changed_ms", "key", postgresql_where=dead, sqlite_where=dead, _table=table)
    return table


@dataclass(frozen=True, slots=True)
class Statements:
    """What a queue asks its table. `name` is the receiver's."""

    table: Table

    def put(self, connection: Connection, name: str, entry: Entry, delivery: Delivery) -> Queued | Known | Conflict:
        """Store the delivery unless it is known."""
        begin_writing(connection, PATIENCE)
        columns, now = self.table.c, now_ms(connection)
        lapsed = and_(columns.key == entry.key, columns.state > RUNNING, columns.due_ms <= now)
        connection.execute(delete(self.table).where(lapsed))
        insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
        row = {
            "key": entry.key,
            "fingerprint": entry.fingerprint,
            "receiver": name,
            "state": QUEUED,
            "attempts": 0,
            "fence": 0,
            "owner": b"",
            "reason": "",
            "accepted_ms": now,
            "changed_ms": now,
            "due_ms": now,
            "envelope": pack(delivery),
            "body": delivery.body,
        }
        new = insert(self.table).values(row).on_conflict_do_nothing().returning(columns.key)
        if connection.execute(new).one_or_none() is not None:
            return Queued()
        return self.find(connection, entry) or Known("queued")  # that it was dropped since is as good as known

    def find(self, connection: Connection, entry: Entry) -> Known | Conflict | None:
        """What is known of the delivery."""
        row = connection.execute(self._live(connection, entry.key)).one_or_none()
        if row is None:
            return None
        return Known(STATES[row.state]) if row.fingerprint == entry.fingerprint else Conflict()

    def anything_due(self, connection: Connection, name: str) -> bool:
        """Whether there is something to take: only reads, so that an idle processor disturbs nobody."""
        return connection.execute(self._due(connection, name, QUEUED, RUNNING).limit(1)).one_or_none() is not None

    def take(self, connection: Connection, name: str, owner: bytes, *, lease_ms: int, limit: int) -> list[Taken]:
        """Take what is due; what lapsed is queued again, at a moment of its own."""
        begin_writing(connection, PATIENCE)
        columns, now = self.table.c, now_ms(connection)
        lapsed = self._due(connection, name, RUNNING).limit(REAPED).with_for_update(skip_locked=True).cte("lapsed")
        spread = func.abs(func.random()) % 1000 if connection.dialect.name == "sqlite" else func.random() * 1000
        back = {"state": QUEUED, "reason": "lost", "changed_ms": now, "due_ms": now + 1 + _whole(spread * SPREAD)}
        connection.execute(update(self.table).where(columns.key.in_(select(lapsed.c.key))).values(back))
        due = self._due(connection, name, QUEUED).limit(limit).with_for_update(skip_locked=True).cte("due")
        begun = {
            "state": RUNNING,
            "owner": owner,
            "fence": columns.fence + 1,
            "attempts": columns.attempts + 1,
            "changed_ms": now,
            "due_ms": now + lease_ms,
        }
        told = (columns.key, columns.envelope, columns.body, columns.fence, columns.attempts)
        rows = connection.execute(
            update(self.table).where(columns.key.in_(select(due.c.key))).values(begun).returning(*told)
        )
        return [Taken(row.key, unpack(row.envelope, row.body), owner, row.fence, row.attempts) for row in rows]

    def renew(self, connection: Connection, taken: Taken, lease_ms: int) -> bool:
        """Let the attempt last."""
        ours = and_(self._ours(taken), self.table.c.state == RUNNING)
        changed = update(self.table).where(ours).values(due_ms=now_ms(connection) + lease_ms)
        return connection.execute(changed).rowcount == 1

    def settle(self, connection: Connection, taken: Taken, goal: int, *, wait_ms: int, reason: str = "") -> bool:
        """End the attempt in the state `goal`."""
        columns, now = self.table.c, now_ms(connection)
        still = columns.state.in_([RUNNING, QUEUED] if goal == DONE else [RUNNING])
        change: dict[str, Any] = {"state": goal, "changed_ms": now, "due_ms": now + wait_ms}
        change |= {"body": None, "envelope": None} if goal == DONE else {"reason": reason}
        if connection.execute(update(self.table).where(self._ours(taken), still).values(change)).rowcount == 1:
            return True
        return connection.scalar(select(columns.state).where(self._ours(taken))) == goal

    def look(self, connection: Connection, key: bytes) -> Record | None:
        """The delivery as it stands."""
        row = connection.execute(self._live(connection, key)).one_or_none()
        return None if row is None else _record(row)

    def dead_letters(self, connection: Connection, name: str, after: tuple[int, bytes], limit: int) -> list[Record]:
        """Dead letters behind that moment and key."""
        columns, (moment, key) = self.table.c, after
        behind = or_(columns.changed_ms > moment, and_(columns.changed_ms == moment, columns.key > key))
        alive = columns.due_ms > now_ms(connection)
        dead = select(self.table).where(columns.receiver == name, columns.state == text("4"), behind, alive)
        return [_record(row) for row in connection.execute(dead.order_by(columns.changed_ms, columns.key).limit(limit))]

    def begin(self, connection: Connection, taken: Taken, *, keep_ms: int) -> bool:
        """Whether the attempt is ours; then it is done if this transaction is committed, and nobody else's before."""
        change = {"state": DONE, "reason": "", "changed_ms": now_ms(connection), "due_ms": now_ms(connection) + keep_ms}
        ours = and_(self._ours(taken), self.table.c.state == RUNNING)
        return connection.execute(update(self.table).where(ours).values(change)).rowcount == 1

    def end(self, connection: Connection, taken: Taken) -> bool:
        """Drop what a done delivery no longer needs; False when the transaction is not that of `begin`."""
        ours = and_(self._ours(taken), self.table.c.state == DONE)
        return connection.execute(update(self.table).where(ours).values(envelope=None, body=None)).rowcount == 1

    def redrive(self, connection: Connection, key: bytes) -> bool:
        """Queue a dead letter again."""
        columns, now = self.table.c, now_ms(connection)
        dead = and_(columns.key == key, columns.state == DEAD, columns.due_ms > now)
        change = update(self.table).where(dead).values(state=QUEUED, attempts=0, changed_ms=now, due_ms=now)
        return connection.execute(change).rowcount == 1

    def depth(self, connection: Connection, name: str) -> Depth:
        """How much there is to do."""
        columns = self.table.c
        waiting = select(func.count(), now_ms(connection) - func.min(columns.due_ms))
        opened, overdue = connection.execute(waiting.where(columns.receiver == name, columns.state < text("3"))).one()
        dead = select(func.count()).where(columns.receiver == name, columns.state == text("4"))
        return Depth(opened, connection.scalar(dead) or 0, max(0, overdue or 0) / 1000)

    def count(self, connection: Connection, name: str) -> int:
        """How many rows the receiver has."""
        return connection.scalar(select(func.count()).where(self.table.c.receiver == name)) or 0

    def prune(self, connection: Connection, batch: int) -> int:
        """Delete at most `batch` rows past their retention; how many."""
        columns = self.table.c
        old = select(columns.key).where(columns.state > text("2"), columns.due_ms <= now_ms(connection))
        chosen = old.order_by(columns.due_ms).limit(batch).with_for_update(skip_locked=True).cte("old")
        return connection.execute(delete(self.table).where(columns.key.in_(select(chosen.c.key)))).rowcount

    def check(self, connection: Connection) -> None:
        """Read nothing from the table."""
        connection.execute(select(self.table).limit(0))

    def _due(self, connection: Connection, name: str, *states: int) -> Select[Any]:
        columns = self.table.c  # the index is found by its own words: "state < 3"
        due = and_(columns.receiver == name, columns.state < text("3"), columns.due_ms <= now_ms(connection))
        return select(columns.key).where(due, columns.state.in_(states)).order_by(columns.due_ms)

    def _live(self, connection: Connection, key: bytes) -> Select[Any]:
        columns = self.table.c
        return select(self.table).where(
            columns.key == key, or_(columns.state < DONE, columns.due_ms > now_ms(connection))
        )

    def _ours(self, taken: Taken) -> Any:  # noqa: ANN401 - an expression
        columns = self.table.c
        return and_(columns.key == taken.key, columns.owner == taken.owner, columns.fence == taken.fence)


def now_ms(connection: Connection) -> Any:  # noqa: ANN401 - an expression of the dialect's
    """The database's clock, in Unix milliseconds."""
    if connection.dialect.name == "sqlite":
        return _whole((func.julianday("now") - 2440587.5) * 86_400_000)
    return _whole(func.extract("epoch", func.clock_timestamp()) * 1000)


def _whole(number: Any) -> Any:  # noqa: ANN401 - an expression
    return cast(number, BigInteger)


def _record(row: Any) -> Record:  # noqa: ANN401 - a row of the table
    delivery = unpack(row.envelope, row.body) if row.body is not None else None
    due_ms = row.due_ms if row.state < DONE else None
    moments = (row.accepted_ms, row.changed_ms, due_ms)
    return Record(row.key, STATES[row.state], row.attempts, row.reason, *moments, delivery)
