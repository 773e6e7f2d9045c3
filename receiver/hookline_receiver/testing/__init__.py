"""For your own tests of what receives: signed requests, a client, a proof of exactly-once, a database for a test.

Nothing here needs a server. For the fixture `hookline_inbox` put this into the conftest.py at the root of your tests:

    pytest_plugins = ["hookline_receiver.testing"]

PYTEST_DONT_REWRITE: there is nothing to rewrite here, and a conftest.py may import this module before pytest does.
"""

from __future__ import annotations

from hookline_receiver.inprocess import DeliveryResponse
from hookline_receiver.testing.client import AsyncDeliveryClient, DeliveryClient, sign_request
from hookline_receiver.testing.exactly import assert_exactly_once, async_assert_exactly_once

__all__ = [
    "AsyncDeliveryClient",
    "DeliveryClient",
    "DeliveryResponse",
    "assert_exactly_once",
    "async_assert_exactly_once",
    "sign_request",
]

pytest_plugins = ["hookline_receiver.testing.fixtures"]
