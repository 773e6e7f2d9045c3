"""Which way a receiver's deliveries go: by claims that are completed, or in transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hookline_receiver.errors import InvalidReceiver
from hookline_receiver.handlers import is_async
from hookline_receiver.handling import Handling
from hookline_receiver.ledger.protocol import TransactionalLedger
from hookline_receiver.transacting import Transacting

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from hookline_receiver.handling import Terms
    from hookline_receiver.ledger.protocol import Ledger

    AnyLedger = Ledger | TransactionalLedger
    Flow = Handling | Transacting


def flow_of(ledger: AnyLedger, terms: Terms, counters: MutableMapping[str, int]) -> Flow:
    """What handles deliveries with that ledger."""
    if isinstance(ledger, TransactionalLedger):
        return Transacting(ledger, terms)
    return Handling(ledger, terms, counters)


def check_ledger(ledger: object) -> None:
    """Raise InvalidReceiver for what is no ledger."""
    steps = (getattr(ledger, "claim", None), getattr(ledger, "transaction", None))
    if isinstance(ledger, type) or not any(map(callable, steps)):
        message = "ledger must be a ledger, like RedisLedger.from_env(), not its class or its address"
        raise InvalidReceiver(message)


def check_handler(ledger: AnyLedger, handler: Callable[..., Any]) -> None:
    """Raise InvalidReceiver for a handler that cannot use the ledger's transactions."""
    if isinstance(ledger, TransactionalLedger) and is_async(handler) is ledger.threaded:
        place, kind = ("a thread", "def") if ledger.threaded else ("the event loop", "async def")
        message = f"{handler!r} must be declared with {kind}: {ledger!r} runs its transactions in {place}"
        raise InvalidReceiver(message)
