"""Which of the connections that wait is used next, and which are closed."""

from __future__ import annotations

from dataclasses import dataclass

from hookline_sender.egress.idle import MAX_IDLE, IdleConnections
from hookline_sender.egress.pooled import MAX_IDLE_CONNECTIONS

KEY, OTHER = ("acme", "https://shop.example"), ("acme", "https://shop.example:8443")


@dataclass(eq=False)
class Waiting:
    opened_at: float = 0.0
    idle_since: float = 0.0
    answered: bool = True
    reusable: bool = True
    unread: bool = False

    def has_unread(self) -> bool:
        return self.unread

    def abort(self) -> None:
        self.reusable = False


def test_the_connection_that_waited_least_is_used_next() -> None:
    idle, older, newer = IdleConnections[Waiting](8), Waiting(), Waiting()
    idle.put(KEY, older, 1.0)
    idle.put(KEY, newer, 2.0)
    assert (idle.take(OTHER, 3.0), idle.take(KEY, 3.0), idle.take(KEY, 3.0), idle.take(KEY, 3.0)) == (
        None,
        newer,
        older,
        None,
    )


def test_those_that_waited_too_long_are_closed_however_busy_their_destination_is() -> None:
    idle, old, other, busy = IdleConnections[Waiting](8), Waiting(), Waiting(), Waiting()
    idle.put(KEY, old, 0.0)
    idle.put(OTHER, other, 10.0)
    idle.put(KEY, busy, 20.0)
    assert (idle.expire(MAX_IDLE - 1), old.reusable) == (MAX_IDLE, True)
    assert (idle.expire(MAX_IDLE), old.reusable, other.reusable) == (10.0 + MAX_IDLE, False, True)
    assert (idle.expire(20.0 + MAX_IDLE), other.reusable, busy.reusable) == (None, False, False)


def test_one_on_which_something_waits_is_closed_and_the_next_one_used() -> None:
    idle, good, spoiled = IdleConnections[Waiting](8), Waiting(), Waiting(unread=True)
    idle.put(KEY, good, 0.0)
    idle.put(KEY, spoiled, 0.0)
    assert (idle.take(KEY, 1.0), spoiled.reusable) == (good, False)


def test_at_most_200_wait_unless_said_otherwise() -> None:
    waiting, idle = [Waiting() for _ in range(201)], IdleConnections[Waiting](MAX_IDLE_CONNECTIONS)
    for each in waiting:
        idle.put(KEY, each, 0.0)
    assert [each.reusable for each in waiting] == [False, *[True] * 200]
