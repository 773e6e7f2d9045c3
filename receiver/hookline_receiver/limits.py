"""Checks of numbers that are limits: nothing is larger than a NaN, so as a limit it would be none."""

from __future__ import annotations

import math

from hookline_receiver.errors import InvalidReceiver


def check_whole(what: str, size: object) -> None:
    """Raise InvalidReceiver unless `size` is an int above 0."""
    if not isinstance(size, int) or size < 1:
        message = f"{what} must be a whole number above 0, not {size!r}"
        raise InvalidReceiver(message)


def check_seconds(least: float = 0.0, /, **seconds: float) -> None:
    """Raise InvalidReceiver unless every one is finite, above 0 and not below `least`."""
    for name, value in seconds.items():
        if not (is_seconds(value) and value > 0 and value >= least):
            message = f"{name} must be a finite number of seconds, {f'{least:g} or more' if least else 'above 0'}"
            raise InvalidReceiver(message)


def is_seconds(value: object) -> bool:
    """Whether it is a finite number, also for callers without a type checker."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -math.inf < value < math.inf


def check_choice(option: str, value: object, *choices: object) -> None:
    """Raise InvalidReceiver unless `value` is one of the choices."""
    if value not in choices:
        message = f"{option}={value!r} is not one of {', '.join(map(repr, choices))}"
        raise InvalidReceiver(message)
