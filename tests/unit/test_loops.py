"""What belongs to an event loop is made for each, and forgotten with it."""

from __future__ import annotations

import asyncio
import weakref

from hookline_receiver.ledger.loops import PerLoop
from tests.support import run


class Connection:
    """What a loop has one of."""


def test_a_loop_has_the_same_one_until_it_is_dropped() -> None:
    async def go() -> None:
        first = connections.current()
        assert connections.current() is first
        connections.drop()
        assert connections.current() is not first

    connections = PerLoop(Connection)
    run(go())


def test_loops_side_by_side_have_one_each_and_a_closed_ones_is_forgotten() -> None:
    async def other() -> weakref.ref[Connection]:
        return weakref.ref(connections.current())

    async def go() -> None:
        mine = connections.current()
        theirs = await asyncio.to_thread(run, other())
        assert theirs() not in {None, mine}
        later = await asyncio.to_thread(run, other())
        assert (theirs(), later() is None, connections.current()) == (None, False, mine)

    connections = PerLoop(Connection)
    run(go())
