"""What one script call costs does not grow with what is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookline_sender.engine import commands
from tests.support_engine import OK, Lane, settlements

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support_engine import Engine

MANY = 3000


def cost(engine: Engine, act: Callable[[], object]) -> int:
    """How many commands the server ran for `act`, those inside scripts included."""
    engine.redis.config_resetstat()
    act()
    told = engine.redis.info("commandstats")
    return sum(int(each["calls"]) for name, each in told.items() if name != "cmdstat_config|resetstat")


def publish_many(engine: Engine, count: int, prefix: str, *lanes: Lane, delay: float = 0) -> None:
    for start in range(0, count, 500):
        pipe = engine.redis.pipeline(transaction=False)
        for number in range(start, min(start + 500, count)):
            made = commands.publish(engine.layout, engine.request(f"{prefix}{number}", *lanes, delay=delay))
            pipe.eval(made.script.source, len(made.keys), *made.keys, *made.args)
        pipe.execute()
    engine.warm(*(lane.id for lane in lanes or (Lane("one"),)))


def test_an_idle_turn_costs_the_same_however_much_waits(engine: Engine) -> None:  # cases: F15
    engine.publish("a", delay=3600)
    engine.turn(10)
    few = cost(engine, lambda: engine.turn(10))
    publish_many(engine, MANY, "b", delay=3600)
    assert cost(engine, lambda: engine.turn(10)) <= few


def test_an_idle_turn_costs_the_same_however_much_is_in_flight(engine: Engine) -> None:  # cases: F15
    lane = Lane("one", cap=2 * MANY)
    engine.publish("a", lane)
    engine.claim(1)
    engine.turn(10)
    few = cost(engine, lambda: engine.turn(10))
    publish_many(engine, MANY, "b", lane)
    while engine.claim(64):
        pass
    assert cost(engine, lambda: engine.turn(10)) <= few


def test_one_turn_costs_the_same_however_much_is_due_at_once(engine: Engine) -> None:  # cases: F07
    publish_many(engine, 200, "a", delay=60)
    engine.advance(60)
    few = cost(engine, lambda: engine.turn(64))
    engine.turn(0, settlements(engine.claim(64) + engine.claim(64) + engine.claim(64), OK))
    publish_many(engine, MANY, "b", delay=60)
    engine.advance(60)
    assert cost(engine, lambda: engine.turn(64)) <= few + 10


def test_looking_at_what_waits_reads_nothing_of_what_other_destinations_have_in_flight(engine: Engine) -> None:
    engine.publish("a", Lane("one"))
    engine.one()
    engine.publish("b", Lane("two"))
    engine.redis.config_resetstat()
    engine.inspect(engine.id_of("b", Lane("two")))
    assert "cmdstat_zrange" not in engine.redis.info("commandstats")
    engine.inspect(engine.id_of("a", Lane("one")))
    assert "cmdstat_zrange" in engine.redis.info("commandstats")
