"""Publish typed events and deliver them as signed webhooks, durably, over Redis.

Declarations need only the base install, so that a contracts module stays light. `Publisher`,
`SyncPublisher`, `Worker`, `Destinations` and `Operator` need the extra `sender` and are imported when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from hookline_sender.arguments import Publish
from hookline_sender.deployment import Deployment, DestinationRef
from hookline_sender.engine.records import Attempt, DeliveryRecord, ListedDelivery, Recovery, State
from hookline_sender.errors import (
    DestinationBusy,
    FanoutExceeded,
    HandshakeFailed,
    IdentityConflict,
    InvalidDeployment,
    InvalidDestination,
    InvalidPayload,
    InvalidPlan,
    InvalidQuestion,
    NamespaceFull,
    NotAllPublished,
    NotGranted,
    NotRedrivable,
    PayloadTooLarge,
    PlanMismatch,
    RedisUnavailable,
    StaleRegistry,
    UnboundEvent,
    UnknownDelivery,
    UnknownDestination,
    UnsafeDestination,
    WeakDurability,
)
from hookline_sender.limits import Breaker
from hookline_sender.plan import Plan, Webhook
from hookline_sender.policy import DeliveryPolicy, HooklineWarning
from hookline_sender.publication import Publication, Receipt, Skipped
from hookline_sender.registration import Destination, Registration
from hookline_shared.errors import HooklineError, InvalidEventType, InvalidSigningKey, UnknownProfile
from hookline_shared.event import DomainEvent, EventType
from hookline_shared.keys import SigningKey
from hookline_shared.raw import RawEventType

if TYPE_CHECKING:
    from hookline_sender.operator import Cancellation, Operator, Redrive
    from hookline_sender.overview import DestinationPage, ListedDestination
    from hookline_sender.probing import Ping
    from hookline_sender.publisher import Publisher
    from hookline_sender.registrar import Destinations
    from hookline_sender.resealing import Resealed
    from hookline_sender.sync_publisher import SyncPublisher
    from hookline_sender.worker import Worker

__all__ = [
    "Attempt",
    "Breaker",
    "Cancellation",
    "DeliveryPolicy",
    "DeliveryRecord",
    "Deployment",
    "Destination",
    "DestinationBusy",
    "DestinationPage",
    "DestinationRef",
    "Destinations",
    "DomainEvent",
    "EventType",
    "FanoutExceeded",
    "HandshakeFailed",
    "HooklineError",
    "HooklineWarning",
    "IdentityConflict",
    "InvalidDeployment",
    "InvalidDestination",
    "InvalidEventType",
    "InvalidPayload",
    "InvalidPlan",
    "InvalidQuestion",
    "InvalidSigningKey",
    "ListedDelivery",
    "ListedDestination",
    "NamespaceFull",
    "NotAllPublished",
    "NotGranted",
    "NotRedrivable",
    "Operator",
    "PayloadTooLarge",
    "Ping",
    "Plan",
    "PlanMismatch",
    "Publication",
    "Publish",
    "Publisher",
    "RawEventType",
    "Receipt",
    "Recovery",
    "RedisUnavailable",
    "Redrive",
    "Registration",
    "Resealed",
    "SigningKey",
    "Skipped",
    "StaleRegistry",
    "State",
    "SyncPublisher",
    "UnboundEvent",
    "UnknownDelivery",
    "UnknownDestination",
    "UnknownProfile",
    "UnsafeDestination",
    "WeakDurability",
    "Webhook",
    "Worker",
]

_WITH_EXTRA = {
    "DestinationPage": "hookline_sender.overview",
    "ListedDestination": "hookline_sender.overview",
    "Resealed": "hookline_sender.resealing",
    "Destinations": "hookline_sender.registrar",
    "Cancellation": "hookline_sender.operator",
    "Operator": "hookline_sender.operator",
    "Ping": "hookline_sender.probing",
    "Publisher": "hookline_sender.publisher",
    "Redrive": "hookline_sender.operator",
    "SyncPublisher": "hookline_sender.sync_publisher",
    "Worker": "hookline_sender.worker",
}


def __getattr__(name: str) -> object:
    """Import what needs the extra, once, or say that it is missing."""
    if name not in _WITH_EXTRA:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value: object = getattr(importlib.import_module(_WITH_EXTRA[name]), name)
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("hookline"):
            raise
        raise ImportError(f"{name} needs {missing.name}, install it with: pip install 'hookline[sender]'") from missing
    globals()[name] = value
    return value
