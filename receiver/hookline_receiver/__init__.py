"""Receive hookline deliveries: verify, deduplicate, and only then handle.

`verify` and what it needs work with the base installation. `Receiver`, `WebhookMiddleware` and `RedisLedger` need the
extra `receiver`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from hookline_receiver.delivery import Delivery
from hookline_receiver.errors import (
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
from hookline_receiver.verification import verify
from hookline_shared.errors import HooklineError
from hookline_shared.event import DomainEvent, DomainEventRef, EventType
from hookline_shared.keys import SigningKey

if TYPE_CHECKING:
    from hookline_receiver.ledger.redis import RedisLedger
    from hookline_receiver.middleware import WebhookMiddleware
    from hookline_receiver.receiver import Receiver

__all__ = [
    "Delivery",
    "DomainEvent",
    "DomainEventRef",
    "EventType",
    "HooklineError",
    "InvalidReceiver",
    "KeysUnavailable",
    "Ledger",
    "LedgerUnavailable",
    "MemoryLedger",
    "Receiver",
    "RedisLedger",
    "Refused",
    "Reject",
    "RetryLater",
    "SigningKey",
    "WeakDurability",
    "WebhookMiddleware",
    "verify",
]

_WITH_EXTRA = {
    "Receiver": "hookline_receiver.receiver",
    "RedisLedger": "hookline_receiver.ledger.redis",
    "WebhookMiddleware": "hookline_receiver.middleware",
}


def __getattr__(name: str) -> object:
    """Import what needs the extra at its first use, so that `verify` alone does not."""
    if name not in _WITH_EXTRA:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    try:
        found: object = getattr(importlib.import_module(_WITH_EXTRA[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"anyio", "redis", "starlette"}:
            raise
        message = f"{name} needs the extra `receiver`: pip install 'hookline[receiver]'"
        raise ImportError(message, name=error.name) from error
    globals()[name] = found
    return found
