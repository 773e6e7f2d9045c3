"""What a sender asks a receiver beside its deliveries: whether it is there, and whether it wants deliveries.

Both are signed like a delivery. They are told from deliveries by their id, which is signed and which no delivery has.
"""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, Field

from hookline_shared.event import EventType

ID_PREFIX: Final = "hookline-probe-"
"""What the id of a probe begins with."""
CHALLENGE_HEADER: Final = b"x-axiom-challenge"
"""In the answer to a validation: the challenge."""
RESERVED: Final = "hookline."
"""What the names of these events begin with, and no other's."""


class Nothing(BaseModel):
    """A ping has no content."""


class Challenge(BaseModel):
    """What the answer has to repeat: 16 to 128 letters, digits, `-` and `_`."""

    challenge: str = Field(pattern="^[A-Za-z0-9_-]{16,128}$")


PING: Final = EventType("hookline.ping", Nothing)
VALIDATION: Final = EventType("hookline.validation", Challenge)
