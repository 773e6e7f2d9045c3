"""For your own tests of code that publishes: no Redis, or a real one of the test's own.

`record` needs no pytest. For the fixture `hookline_redis` put this into the conftest.py at the root of your tests:

    pytest_plugins = ["hookline_sender.testing"]

Nothing is started until a test asks for the fixture. PYTEST_DONT_REWRITE: there is nothing to rewrite here, and a
conftest.py may import this module before pytest does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookline_sender.pacing import PACING
from hookline_sender.recording import Outlet, Recorded, Recording

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__all__ = ["Recorded", "Recording", "record", "without_backoff"]

pytest_plugins = ["hookline_sender.testing.fixtures"]


def record(publisher: Outlet, /) -> AbstractContextManager[Recording]:
    """While the block runs, what is published is kept in memory; `publisher` is a Publisher or a SyncPublisher.

        with record(publisher) as published:
            client.post("/orders")
        assert published.only(order_paid).order_id == "42"

    Everything but Redis is as in production: payloads, keywords and limits are checked, grants are required, a repeat
    of an id is a duplicate with the same receipts, and other content under it an IdentityConflict. Opening and closing
    the publisher inside the block does nothing, so that an application's lifespan may run there. Works from any thread.

    Without a deployment the environment counts, as ever, but need not be complete: without HOOKLINE_GRANTS everything
    is granted, and HOOKLINE_REDIS_URL is not needed.

    Raises HooklineError when the publisher is being recorded already.
    """
    return publisher.recording()


def without_backoff() -> AbstractContextManager[None]:
    """While the block runs, workers of this process retry at once, whatever policy or `Retry-After` say.

    It counts when an attempt ends, for every worker and thread of the process, and no breaker opens then. Attempts,
    deadlines and the policies that are stored stay as they are, and so does the wait of a task whose worker died.
    """
    return PACING.hurried()
