"""The error root both sides share.

HooklineError
├── InvalidSigningKey      key text that cannot be a key (shared)
├── InvalidHeader          a value that may not be put in a signed header (shared)
├── InvalidEventType       an event declared with a bad name, model or option (shared)
├── InvalidEvent           bytes that are not the event, or a payload that cannot become its bytes (shared)
├── UnknownProfile         no wire profile of that name (shared)
├── …                      hookline_sender.errors
└── …                      hookline_receiver.errors
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class HooklineError(Exception):
    """Root of every error hookline raises on purpose; its text says what to do next."""


class InvalidSigningKey(HooklineError):
    """Key text is malformed, empty or too short. Never contains the key text."""


class InvalidHeader(HooklineError):
    """A value of the sender's own may not be put in a signed header. Names the header, never the value."""


class InvalidEventType(HooklineError, ValueError):
    """An event type is declared with a name, model or option that it may not have."""


class InvalidEvent(HooklineError):
    """A body that is not the event, or a payload that cannot become a body. Never contains either.

    `reason` is stable: `not_json`, `wrong_type`, `not_the_model` (received), `not_serialisable`, `bad_argument` (sent).
    """

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class UnknownProfile(HooklineError, ValueError):
    """No wire profile has that name."""

    @classmethod
    def among(cls, name: str, known: Iterable[str]) -> UnknownProfile:
        """The error for `name` that lists the known ones."""
        return cls(f"unknown profile {name!r}: use one of {', '.join(sorted(known))}")
