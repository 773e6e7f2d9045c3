"""A namespace belongs to one plan; a plan may grow, and takes nothing away from work that is waiting."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hookline_sender.engine import commands
from hookline_sender.engine.records import Dead, Retry, State
from hookline_sender.errors import NotGranted, PlanMismatch
from tests.support_engine import DAY, ORDERED, POLICY, Fact, Lane, keys_of, plan_of, settlements

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookline_sender.plan import Plan
    from tests.support_engine import Engine

    Bound = Callable[..., Engine]

GROWN = plan_of(billing=POLICY, audit=POLICY)
OTHER = plan_of(audit=POLICY)


def stamps(engine: Engine) -> dict[str, object]:
    """All keys, without the time at which a revision was last bound."""
    dump = engine.dump()
    dump["meta"] = {field: value for field, value in dump["meta"].items() if not field.startswith(b"rev:")}
    return dump


def test_binding_twice_changes_nothing(engine: Engine) -> None:
    engine.publish("a")
    before = stamps(engine)
    engine.bind()
    assert stamps(engine) == before


def test_a_plan_that_grew_is_bound_silently_and_both_go_on(engine: Engine) -> None:
    engine.publish("a")
    engine.bind(GROWN)
    engine.publish("b")
    engine.publish("c", Lane("one", "audit"), plan=GROWN)
    assert {task.event_key for task in engine.claim(bindings=("billing", "audit"))} == {"a", "b", "c"}


def test_the_plan_before_is_accepted_for_a_day_and_then_refused(engine: Engine) -> None:
    engine.bind(GROWN)
    engine.advance(DAY - 60)
    engine.publish("a")
    assert engine.one().event_key == "a"
    engine.advance(120)
    with pytest.raises(PlanMismatch, match="24 h"):
        engine.publish("b")
    with pytest.raises(PlanMismatch, match="24 h"):
        engine.turn()
    engine.publish("b", plan=GROWN)


def test_an_old_process_that_starts_again_amid_a_deploy_takes_nothing_from_the_new_plan(engine: Engine) -> None:
    engine.bind(GROWN)
    engine.publish("a", Lane("one", "audit"), plan=GROWN)
    engine.advance(DAY - 60)
    engine.bind()
    engine.advance(120)
    engine.publish("b")
    engine.publish("c", Lane("one", "audit"), plan=GROWN)
    engine.bind(GROWN)
    assert engine.counters()["open"] == 3


def test_going_back_to_a_plan_of_the_same_bindings_lasts(engine: Engine) -> None:
    more_events = plan_of()
    more_events.event("order.refunded", Fact)
    engine.bind(more_events)
    engine.bind()
    engine.advance(2 * DAY)
    engine.publish("a")
    with pytest.raises(PlanMismatch):
        engine.publish("b", plan=more_events)


@pytest.mark.parametrize(
    ("plan", "word"), [(OTHER, "removed"), (plan_of(billing=ORDERED), "changed")], ids=["removed", "changed"]
)
def test_a_binding_with_unfinished_tasks_is_neither_removed_nor_changed(engine: Engine, plan: Plan, word: str) -> None:
    for key in ("a", "b"):
        engine.publish(key)
    before = engine.dump()
    with pytest.raises(PlanMismatch, match=f'"billing" was {word} and still has 2 unfinished tasks'):
        engine.bind(plan)
    assert engine.dump() == before


def test_a_binding_whose_tasks_all_ended_can_be_changed_and_the_old_plan_is_refused_at_once(engine: Engine) -> None:
    engine.publish("a")
    engine.settle(engine.one())
    changed = plan_of(billing=ORDERED)
    engine.bind(changed, may_replace=True)
    with pytest.raises(PlanMismatch):
        engine.publish("b")
    engine.publish("b", Lane("one", ordering="binding", cap=1), plan=changed)


@pytest.mark.parametrize(
    ("plan", "word"), [(OTHER, "removed"), (plan_of(billing=ORDERED), "changed")], ids=["removed", "changed"]
)
def test_a_plan_that_lacks_something_replaces_another_only_if_it_may(engine: Engine, plan: Plan, word: str) -> None:
    before = engine.dump()
    with pytest.raises(NotGranted, match=f'"billing" was {word}.*add "bind:" to grants'):
        engine.bind(plan)
    assert engine.dump() == before
    engine.bind(plan, may_replace=True)
    engine.bind(plan)
    with pytest.raises(NotGranted):
        engine.bind()


def test_dead_letters_of_a_binding_do_not_keep_it(engine: Engine) -> None:
    engine.publish("a", Lane("one", deadline=1))
    engine.advance(2)
    engine.claim()
    engine.bind(OTHER, may_replace=True)
    assert len(engine.dump()["dead"]) == 1


def test_another_layout_is_refused_and_changes_nothing(engine: Engine) -> None:
    engine.redis.hset(engine.layout.meta, "layout", "2")
    before = engine.dump()
    with pytest.raises(PlanMismatch, match="layout 2"):
        engine.bind(GROWN)
    assert engine.dump() == before


def test_limits_are_those_of_the_last_bind(engine: Engine) -> None:
    engine.bind(max_records=7, retention=60, dead_retention=120)
    meta = engine.redis.hmget(engine.layout.meta, "max_records", "retention_ms", "dead_retention_ms")
    assert meta == [b"7", b"60000", b"120000"]


def test_a_queued_task_keeps_the_policy_it_was_published_under(engine: Engine) -> None:
    engine.publish("a")
    engine.bind(hasty := plan_of(billing=replace(POLICY, attempts=2, backoff=121.0)))
    assert hasty.fingerprint == engine.plan.fingerprint
    for _ in range(3):
        task = engine.one()
        assert engine.settle(task, Retry("http_5xx", 1, 500), 1) == "waiting"
        engine.advance(1)
    stored = engine.run(commands.policies(engine.layout, engine.inspect(engine.id_of("a")).revision))
    assert stored == {"billing": POLICY}
    assert engine.run(commands.policies(engine.layout, hasty.revision))["billing"].attempts == 2


def test_the_policies_of_an_unknown_revision_are_none(engine: Engine) -> None:
    assert engine.run(commands.policies(engine.layout, "0" * 16)) == {}


def test_a_revision_is_kept_while_publications_carry_it_and_pruned_a_day_after_the_last(engine: Engine) -> None:
    engine.publish("a", Lane("one", deadline=3 * DAY))
    engine.bind(newer := plan_of(billing=replace(POLICY, backoff=61.0)))
    engine.advance(DAY + 60)
    engine.bind(newer)
    assert f"plan:{engine.plan.revision}" in engine.names()
    engine.settle(engine.one())
    engine.advance(DAY + 60)
    engine.purge()
    engine.bind(newer)
    assert f"plan:{engine.plan.revision}" not in engine.names()


def test_a_pruned_revision_is_refused_by_name_and_binding_again_heals_it(engine: Engine) -> None:
    engine.bind(newer := plan_of(billing=replace(POLICY, backoff=61.0)))
    engine.advance(DAY + 60)
    engine.bind(newer)
    with pytest.raises(commands.RevisionUnknown):
        engine.publish("a")
    engine.bind()
    engine.publish("a")
    assert engine.inspect(engine.id_of("a")).state is State.ACCEPTED


@pytest.mark.parametrize("last", [1, 3])
def test_a_destination_has_the_limits_of_the_plan_that_something_was_last_published_under(
    engine: Engine, last: int
) -> None:
    engine.bind(newer := plan_of(billing=replace(POLICY, backoff=61.0)))
    engine.bind()  # an old process starts again amid a deploy
    plans = {1: engine.plan, 3: newer}
    for number, cap in enumerate([last, 4 - last, 4 - last, last]):
        engine.publish(str(number), Lane("one", cap=cap), plan=plans[cap])
    assert len(engine.claim()) == last


def test_a_newer_concurrency_lets_go_of_what_waited_for_it_whatever_is_published(engine: Engine) -> None:
    for key in ("running", "waits"):
        engine.publish(key, Lane("one", cap=1))
    engine.one()
    engine.bind(newer := plan_of(billing=replace(POLICY, backoff=61.0)))
    engine.publish("later", Lane("one", cap=3), plan=newer, delay=60)
    assert keys_of(engine.claim()) == ["waits"]


def test_the_order_of_a_plan_that_was_gone_back_to_holds_again(engine: Engine) -> None:
    ordered = plan_of(billing=ORDERED)
    engine.publish("dead")
    engine.settle(engine.one(), Dead("http_4xx", 1, 404))
    engine.bind(ordered, may_replace=True)
    engine.publish("a", Lane("one", ordering="binding"), plan=ordered)
    engine.plan = ordered
    engine.settle(engine.one())
    engine.plan = plan_of()
    engine.bind(may_replace=True)
    engine.publish("b", delay=60)
    engine.publish("c")
    engine.settle(engine.one())
    engine.advance(61)
    assert keys_of(engine.claim()) == ["b"]


def test_dead_letters_that_are_redriven_under_a_new_order_go_one_at_a_time(engine: Engine) -> None:
    for key in ("a", "b"):
        engine.publish(key)
    engine.turn(0, settlements(engine.claim(), Dead("http_4xx", 1, 404)))
    engine.plan = plan_of(billing=ORDERED)
    engine.bind(may_replace=True)
    for key in ("b", "a"):
        engine.redrive(engine.id_of(key))
    assert keys_of(engine.claim()) == ["b"]
