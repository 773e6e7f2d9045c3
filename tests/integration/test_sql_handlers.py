"""What a handler may do with the session of its delivery, and what it may not."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event, insert, text
from sqlalchemy.exc import DBAPIError, InvalidRequestError

from hookline_receiver import InvalidReceiver, Receiver
from tests.support_receiver import Order, nothing, receiver
from tests.support_sql import EFFECTS, REQUEST, order, replayed

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tests.support_sql import Shop


def write(session: Session, name: str) -> None:
    session.execute(insert(EFFECTS).values(id=name))


def committed(session: Session) -> None:
    session.commit()


def rolled_back(session: Session) -> None:
    session.rollback()


def closed(session: Session) -> None:
    session.close()


@pytest.mark.parametrize("end", [committed, rolled_back, closed])
def test_a_handler_that_ends_the_transaction_itself_has_failed(shop: Shop, end: Any) -> None:
    def write_again(session: Session) -> None:
        write(session, "outside")

    first, retry = shop.deliver(shop.receiver([end, write_again]), REQUEST, REQUEST)
    assert (first.status, retry.status, replayed(retry)) == (500, 204, False)
    assert (shop.effects(), shop.rows()) == (["o_1"], [204])


def test_a_session_that_outlives_its_delivery_begins_no_other_transaction(shop: Shop) -> None:
    def keep(session: Session) -> None:
        sessions.append(session)

    sessions: list[Session] = []
    assert shop.deliver(shop.receiver([keep]), REQUEST)[0].status == 204
    with pytest.raises(InvalidRequestError, match="permanently closed"):
        sessions[0].connection()


def test_a_failed_statement_that_a_handler_overlooks_is_no_success(postgres_shop: Shop) -> None:
    def overlook(session: Session) -> None:
        with contextlib.suppress(DBAPIError):
            session.execute(text("SELECT 1/0"))  # from now on PostgreSQL's COMMIT rolls back, without a word

    first, retry = postgres_shop.deliver(postgres_shop.receiver([overlook]), REQUEST, REQUEST)
    assert (first.status, retry.status, replayed(retry), postgres_shop.effects()) == (500, 204, False, ["o_1"])


def test_only_what_a_handler_did_not_roll_back_is_committed(shop: Shop) -> None:  # cases: E10
    def nested(session: Session) -> None:
        with contextlib.suppress(ZeroDivisionError), session.begin_nested():
            write(session, "rolled back")
            raise ZeroDivisionError
        with session.begin_nested():
            write(session, "kept")

    (reply,) = shop.deliver(shop.receiver([nested]), REQUEST)
    assert (reply.status, shop.effects()) == (204, ["o_1", "kept"])


@pytest.mark.parametrize("fails", [True, False])
def test_hooks_after_the_commit_run_when_it_is_committed_and_only_then(
    shop: Shop, *, fails: bool
) -> None:  # cases: E10
    def hook(session: Session) -> None:
        event.listen(session, "after_commit", lambda _: seen.append(shop.effects()))
        with session.begin_nested():
            write(session, "inner")
        seen.clear()  # SQLAlchemy calls it for a savepoint's release too

    seen: list[list[str]] = []
    shop.deliver(shop.receiver([hook, *([ValueError()] if fails else [])]), REQUEST)
    assert seen == ([] if fails else [["o_1", "inner"]])


def test_what_fails_at_the_commit_is_no_success(postgres_shop: Shop) -> None:
    postgres_shop.execute("CREATE TABLE once (id int, UNIQUE (id) DEFERRABLE INITIALLY DEFERRED)")
    run = ["INSERT INTO once VALUES (1), (1)"]
    first, retry = postgres_shop.deliver(postgres_shop.receiver(run), REQUEST, REQUEST)
    assert (first.status, retry.status, replayed(retry), postgres_shop.effects()) == (500, 204, False, ["o_1"])


def test_a_handler_of_the_wrong_kind_is_refused_when_it_is_declared(shop: Shop) -> None:
    async def asynchronous(event: object) -> None:
        pass

    made: Receiver = receiver(ledger=shop.ledger())
    with pytest.raises(InvalidReceiver, match="must be declared with"):
        made.on("order.paid", Order)(asynchronous if made.ledger.threaded else nothing)  # type: ignore[union-attr]


def test_a_plain_handler_and_its_transaction_share_one_thread(shop: Shop) -> None:
    def note(session: Session) -> None:
        names.add(threading.current_thread().name)
        event.listen(session, "after_commit", lambda _: names.add(threading.current_thread().name))

    names: set[str] = set()
    shop.deliver(shop.receiver([note]), REQUEST)
    assert len(names) == 1
    assert ("hookline-transaction" in names.pop()) is shop.ledger().threaded


def test_fifty_deliveries_of_which_one_cannot_be_stored_store_the_others(postgres_shop: Shop) -> None:  # cases: E25
    requests = [order(f"o_{n}") for n in range(49)] + [order("\0")]
    replies = postgres_shop.at_once(postgres_shop.receiver(), requests)
    assert sorted(reply.status for reply in replies) == [204] * 49 + [500]
    assert len(set(postgres_shop.effects())) == len(postgres_shop.rows()) == 49
