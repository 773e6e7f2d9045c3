"""What a receiver answers by itself: a sender's ping, and its question whether deliveries are wanted here.

Neither is an event: no handler, endpoint or ledger hears of them. They are authentic by then: whoever asks has a key of
this receiver's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hookline_receiver import answers
from hookline_receiver.answers import Answer
from hookline_shared.errors import InvalidEvent
from hookline_shared.event import decode_event, peek_type
from hookline_shared.probes import CHALLENGE_HEADER, ID_PREFIX, PING, VALIDATION

if TYPE_CHECKING:
    from hookline_receiver.delivery import Delivery

_PONG: Final = Answer(204, "ping")


def answer_to(delivery: Delivery) -> Answer | None:
    """The answer to a probe; None for every delivery. Any bytes in the body are answered."""
    if not delivery.id.startswith(ID_PREFIX):
        return None
    match peek_type(delivery.body):
        case PING.name:
            return _PONG
        case VALIDATION.name:
            return _validation(delivery.body)
        case _:
            return answers.UNPROCESSABLE


def _validation(body: bytes) -> Answer:
    try:
        asked = decode_event(VALIDATION, body).data
    except InvalidEvent:
        return answers.UNPROCESSABLE
    return Answer(204, "validation", headers=((CHALLENGE_HEADER, asked.challenge.encode()),))
