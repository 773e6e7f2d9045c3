"""The inbox row in a session that somebody else opened."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from hookline_receiver.errors import DeliveryConflict, RetryLater
from hookline_receiver.ledger.protocol import Busy, Conflict, Done

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session

    from hookline_receiver.ledger.inbox import Inbox
    from hookline_receiver.ledger.protocol import Entry


@contextlib.asynccontextmanager
async def entered_async(inbox: Inbox, session: AsyncSession, entry: Entry) -> AsyncGenerator[bool]:
    """Whether the row is new; the session is committed at the end."""
    try:
        yield await session.run_sync(lambda plain: _is_first(inbox.enter(plain.connection(), entry)))
        await session.commit()
    except BaseException:
        await session.rollback()
        raise


@contextlib.contextmanager
def entered_sync(inbox: Inbox, session: Session, entry: Entry) -> Generator[bool]:
    """Whether the row is new; the session is committed at the end."""
    try:
        yield _is_first(inbox.enter(session.connection(), entry))
        session.commit()
    except BaseException:
        session.rollback()
        raise


def _is_first(claim: Done | Conflict | Busy | None) -> bool:
    match claim:
        case None:
            return True
        case Done():
            return False
        case Conflict():
            raise DeliveryConflict
        case Busy(remaining):
            raise RetryLater(remaining)
