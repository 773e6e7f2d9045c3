from __future__ import annotations

import asyncio

import pytest

from hookline_receiver import Delivery, InvalidReceiver
from hookline_receiver.turns import Turns
from tests.support import run


def test_equal_keys_take_turns_in_the_order_they_came_and_others_do_not_wait() -> None:
    async def turn(key: bytes, name: str) -> None:
        async with turns.turn(key, 5.0) as ours:
            assert ours
            seen.append(f"{name} begins")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            seen.append(f"{name} ends")

    async def go() -> None:
        await asyncio.gather(turn(b"a", "first"), turn(b"a", "second"), turn(b"b", "other"))

    turns, seen = Turns(), list[str]()
    run(go())
    assert seen == ["first begins", "other begins", "first ends", "other ends", "second begins", "second ends"]


def test_whoever_has_no_turn_in_time_is_told_and_the_next_gets_it() -> None:
    async def go() -> tuple[bool, bool]:
        async with turns.turn(b"a", 1.0), turns.turn(b"a", 0.01) as early:
            pass
        async with turns.turn(b"a", 0.01) as late:
            return early, late

    turns = Turns()
    assert run(go()) == (False, True)


def test_nothing_is_kept_of_keys_that_nobody_waits_for() -> None:
    async def go() -> None:
        for number in range(100):
            async with turns.turn(b"%d" % number, 1.0):
                pass

    turns = Turns()
    run(go())
    assert len(turns._locks) == 0


def test_a_delivery_without_a_transaction_has_no_session() -> None:
    delivery = Delivery("dlv_1", None, None, None, None, None, b"")
    with pytest.raises(InvalidReceiver, match="give the receiver a SqlLedger"):
        _ = delivery.session
