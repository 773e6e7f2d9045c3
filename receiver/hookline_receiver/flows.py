"""Which way a receiver's deliveries go: by claims that are completed, in transactions, or into a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hookline_receiver.accepting import Accepting
from hookline_receiver.errors import InvalidReceiver
from hookline_receiver.handlers import is_async
from hookline_receiver.handling import Handling
from hookline_receiver.ledger.protocol import TransactionalLedger
from hookline_receiver.queues.protocol import Queue
from hookline_receiver.transacting import Transacting

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from hookline_receiver.handling import Terms
    from hookline_receiver.ledger.protocol import Ledger

    AnyLedger = Ledger | TransactionalLedger
    Flow = Handling | Transacting | Accepting


def flow_of(ledger: AnyLedger | Queue, terms: Terms, counters: MutableMapping[str, int], name: str) -> Flow:
    """What is done with the deliveries of the receiver called `name`, with that ledger."""
    if isinstance(ledger, Queue):
        return Accepting(ledger, name, counters)
    return handling_of(ledger, terms, counters)


def handling_of(ledger: AnyLedger, terms: Terms, counters: MutableMapping[str, int]) -> Handling | Transacting:
    """What handles deliveries with that ledger."""
    if isinstance(ledger, TransactionalLedger):
        return Transacting(ledger, terms)
    return Handling(ledger, terms, counters)


def check_ledger(ledger: object, mode: str) -> None:
    """Raise InvalidReceiver for what is no ledger, or not one for this mode."""
    steps = (getattr(ledger, name, None) for name in ("claim", "transaction", "put"))
    if isinstance(ledger, type) or not any(map(callable, steps)):
        message = "ledger must be a ledger, like RedisLedger.from_env(), not its class or its address"
    elif isinstance(ledger, Queue) is not (mode == "accept"):
        needs = "a queue, like RedisQueue.from_env()" if mode == "accept" else 'a ledger: a queue needs mode="accept"'
        message = f'a receiver with mode="{mode}" needs {needs}, not {ledger!r}'
    else:
        return
    raise InvalidReceiver(message)


def check_handler(ledger: AnyLedger | Queue, handler: Callable[..., Any]) -> None:
    """Raise InvalidReceiver for a handler that cannot use the ledger's transactions."""
    threaded = ledger.threaded if isinstance(ledger, TransactionalLedger | Queue) else None
    if threaded is not None and is_async(handler) is threaded:
        place, kind = ("a thread", "def") if threaded else ("the event loop", "async def")
        message = f"{handler!r} must be declared with {kind}: {ledger!r} runs its transactions in {place}"
        raise InvalidReceiver(message)
