"""The error root both sides share.

HooklineError
├── InvalidSigningKey      key text that cannot be a key (shared)
├── …                      hookline_sender.errors
└── …                      hookline_receiver.errors
"""


class HooklineError(Exception):
    """Root of every error hookline raises on purpose; its text says what to do next."""


class InvalidSigningKey(HooklineError):
    """Key text is malformed, empty or too short. Never contains the key text."""
