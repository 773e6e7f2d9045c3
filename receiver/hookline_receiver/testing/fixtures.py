"""The pytest fixture `hookline_inbox`: a database of the test's own with an inbox in it. Needs the extra `sql`.

PYTEST_DONT_REWRITE: there is nothing to rewrite here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

try:
    from sqlalchemy import Engine, MetaData, create_engine, select
    from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
    from sqlalchemy.pool import NullPool
except ModuleNotFoundError as error:
    message = "the fixture hookline_inbox needs the extra `sql`: pip install 'hookline[sql]'"
    raise ImportError(message, name=error.name) from error

from hookline_receiver.ledger.inbox import inbox_table
from hookline_receiver.ledger.sql import SqlLedger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["HooklineInbox", "hookline_inbox"]

_METADATA = MetaData()
_TABLE = inbox_table(_METADATA)


@dataclass(frozen=True, slots=True)
class HooklineInbox:
    """A SQLite file with an inbox. `engine` is for plain `def` handlers, and for looking; `path` for other drivers."""

    path: Path
    engine: Engine

    @property
    def async_engine(self) -> AsyncEngine:
        """An engine for `async def` handlers; needs aiosqlite. Good in any event loop: it keeps no connection."""
        return create_async_engine(f"sqlite+aiosqlite:///{self.path}", poolclass=NullPool)

    def ledger(self, *, threaded: bool = False) -> SqlLedger:
        """A ledger for `async def` handlers, or with `threaded=True` for plain `def` ones."""
        return SqlLedger(self.engine if threaded else self.async_engine, prune_interval=None)

    def create_all(self, metadata: MetaData) -> None:
        """Create your own tables beside the inbox."""
        metadata.create_all(self.engine)

    def statuses(self) -> list[int]:
        """With which status each delivery was handled."""
        with self.engine.connect() as connection:
            return list(connection.scalars(select(_TABLE.c.status)))


@pytest.fixture
def hookline_inbox(tmp_path: Path) -> Iterator[HooklineInbox]:
    """A database with an inbox that no other test uses."""
    path = tmp_path / "hookline_inbox.db"
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)
    _METADATA.create_all(engine)
    yield HooklineInbox(path, engine)
    engine.dispose()
