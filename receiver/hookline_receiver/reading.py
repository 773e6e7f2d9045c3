"""What an authentic delivery is to its receiver: which row is its own, and which handler it is for."""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Final

from hookline_receiver import answers
from hookline_receiver.handlers import Router, Starter, decode, event_id_of
from hookline_receiver.ledger.protocol import Entry
from hookline_shared.errors import InvalidEvent
from hookline_shared.event import peek_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookline_receiver.answers import Answer
    from hookline_receiver.delivery import Delivery
    from hookline_receiver.handlers import Start

log = logging.getLogger("hookline.receiver")

_MOST_TOLD: Final = 64  # names without a handler: a sender who makes names up fills no log


class Reading:
    """One receiver's handlers, and how its deliveries are named in the ledger.

    `place`: what tells its rows from other endpoints'. `unknown`: the answer to an event without a handler. `by_event`:
    rows are named by the event's id. `type_from`: the event's name, for bodies that do not hold it.
    """

    def __init__(
        self,
        *place: str,
        unknown: Answer,
        by_event: bool,
        type_from: Callable[[Delivery], str | None] | None,
    ) -> None:
        self.router, self.starter = Router(), Starter()
        self._place, self._unknown = place, unknown
        self._by_event, self._type_from = by_event, type_from
        self._told = set[str]()

    def entry(self, delivery: Delivery) -> Entry:
        """The delivery's row."""
        event_id = event_id_of(delivery.body) if self._by_event else None
        kind, identity = ("delivery", delivery.id) if event_id is None else ("event", event_id)
        return Entry.of(*self._place, kind, identity, body=delivery.body)

    def keys_of(self, identity: str) -> tuple[bytes, ...]:
        """The keys that the row of a delivery or an event with that id may have."""
        kinds = ("event", "delivery") if self._by_event else ("delivery",)
        return tuple(Entry.of(*self._place, kind, identity, body=b"").key for kind in kinds)

    def prepare(self, delivery: Delivery) -> Start | Answer:
        """What starts the handler, or the answer to a delivery that has none or is not its event."""
        try:
            named = self._named(delivery)
            routes = self.router.find(delivery.body, named)
            if routes is None:
                self._tell_unknown(named or peek_type(delivery.body) or "")
                return self._unknown
            return self.starter.starting(decode(routes, delivery))
        except InvalidEvent as error:
            log.warning("refused: unprocessable (%s)", error)
            return answers.UNPROCESSABLE
        except Exception:  # the user's type_from, or a validator of the user's model
            log.exception("the event could not be read")
            return answers.FAILED

    def _tell_unknown(self, name: str) -> None:
        """Say it once for each name: it may be a handler's, mistyped, and then its events go nowhere."""
        if name not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(name)
            log.warning("no handler for %.130r: answered %d, which is said once", name, self._unknown.status)

    def _named(self, delivery: Delivery) -> str | None:
        named: object = None if self._type_from is None else self._type_from(delivery)
        if named is None or isinstance(named, str):
            return named
        if inspect.iscoroutine(named):
            named.close()
        message = f"type_from must return the event's name or None, not {type(named).__name__}"
        raise TypeError(message)  # anything else would name no handler's event, and be acknowledged as unknown
