"""What the tests of accepted deliveries share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import MetaData

from hookline_receiver import MemoryQueue, Processor, Receiver, SqlQueue, queue_table
from tests.support_receiver import KEY, NOW_MS, Order

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookline_receiver.queues.protocol import Queue
    from tests.support_sql import Shop

METADATA = MetaData()
QUEUE = queue_table(METADATA)


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def accepting(handler: Callable[..., Any], *, queue: Queue | None = None, **options: Any) -> Receiver:
    """A receiver in accept mode whose orders go to `handler`."""
    queue = queue or MemoryQueue(allow_volatile=True)
    made = Receiver("orders", keys=KEY, ledger=queue, mode="accept", clock=lambda: NOW_MS, **options)
    made.on("order.paid", Order)(handler)
    return made


def processor_of(app: Receiver, **options: Any) -> Processor:
    """A processor that looks often and retries at once."""
    return Processor(app, **{"poll": 0.01, "backoff": 0.001, "rand": lambda: 0.0, **options})


def queue_of(shop: Shop, **options: Any) -> SqlQueue:
    """A queue on the shop's engine, with its table there."""
    METADATA.create_all(shop.observer)
    return SqlQueue(shop.engine, **options)
