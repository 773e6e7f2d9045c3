"""Receive hookline deliveries: verify, deduplicate, and only then handle.

`verify` and what it needs work with the base installation. `Receiver`, `WebhookMiddleware`, `Processor` and what is in
Redis need the extra `receiver`; `SqlLedger`, `SqlQueue` and their tables the extra `sql` too.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from hookline_receiver.delivery import Delivery
from hookline_receiver.errors import (
    DeliveryConflict,
    InvalidReceiver,
    KeysUnavailable,
    LedgerUnavailable,
    Refused,
    Reject,
    RetryLater,
    WeakDurability,
)
from hookline_receiver.ledger.memory import MemoryLedger
from hookline_receiver.ledger.protocol import Ledger
from hookline_receiver.queues.memory import MemoryQueue
from hookline_receiver.verification import verify
from hookline_shared.errors import HooklineError, InvalidEventType, InvalidSigningKey, UnknownProfile
from hookline_shared.event import DomainEvent, DomainEventRef, EventType
from hookline_shared.keys import SigningKey

if TYPE_CHECKING:
    from hookline_receiver.ledger.inbox import inbox_table
    from hookline_receiver.ledger.redis import RedisLedger
    from hookline_receiver.ledger.revisions import SqlRevisions, revision_table
    from hookline_receiver.ledger.sql import SqlLedger
    from hookline_receiver.middleware import WebhookMiddleware
    from hookline_receiver.processor import Processor
    from hookline_receiver.queues.redis import RedisQueue
    from hookline_receiver.queues.sql import SqlQueue
    from hookline_receiver.queues.statements import queue_table
    from hookline_receiver.receiver import Receiver

__all__ = [
    "Delivery",
    "DeliveryConflict",
    "DomainEvent",
    "DomainEventRef",
    "EventType",
    "HooklineError",
    "InvalidEventType",
    "InvalidReceiver",
    "InvalidSigningKey",
    "KeysUnavailable",
    "Ledger",
    "LedgerUnavailable",
    "MemoryLedger",
    "MemoryQueue",
    "Processor",
    "Receiver",
    "RedisLedger",
    "RedisQueue",
    "Refused",
    "Reject",
    "RetryLater",
    "SigningKey",
    "SqlLedger",
    "SqlQueue",
    "SqlRevisions",
    "UnknownProfile",
    "WeakDurability",
    "WebhookMiddleware",
    "inbox_table",
    "queue_table",
    "revision_table",
    "verify",
]

_WITH_EXTRA = {
    "Receiver": "hookline_receiver.receiver",
    "Processor": "hookline_receiver.processor",
    "RedisLedger": "hookline_receiver.ledger.redis",
    "RedisQueue": "hookline_receiver.queues.redis",
    "SqlLedger": "hookline_receiver.ledger.sql",
    "SqlQueue": "hookline_receiver.queues.sql",
    "SqlRevisions": "hookline_receiver.ledger.revisions",
    "WebhookMiddleware": "hookline_receiver.middleware",
    "inbox_table": "hookline_receiver.ledger.inbox",
    "queue_table": "hookline_receiver.queues.statements",
    "revision_table": "hookline_receiver.ledger.revisions",
}
_EXTRA_OF = {"anyio": "receiver", "redis": "receiver", "starlette": "receiver", "sqlalchemy": "sql"}


def __getattr__(name: str) -> object:
    """Import what needs an extra at its first use, so that `verify` alone does not."""
    if name not in _WITH_EXTRA:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    try:
        found: object = getattr(importlib.import_module(_WITH_EXTRA[name]), name)
    except ModuleNotFoundError as error:
        extra = _EXTRA_OF.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        message = f"{name} needs the extra `{extra}`: pip install 'hookline[{extra}]'"
        raise ImportError(message, name=error.name) from error
    globals()[name] = found
    return found
