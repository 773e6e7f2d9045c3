"""Numbers that are settings: whether one is a number at all, and within its range."""

from __future__ import annotations


def fault(name: str, value: object, low: float, high: float) -> str | None:
    """What is wrong with a setting, None when it is a number from `low` to `high`.

    >>> fault("lease", 700, 0.5, 600.0)
    'lease=700 is outside 0.5-600'
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{name} is a number, not {value!r}"
    if low <= value <= high:  # not so for nan
        return None
    try:
        shown = f"{name}={value:.15g}"
    except OverflowError:  # a whole number that no float can hold
        shown = name
    return f"{shown} is outside {low:.15g}-{high:.15g}"
