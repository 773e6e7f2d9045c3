"""Registered destinations in the engine: who is matched, and what a change does to a lane."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hookline_sender import (
    InvalidDestination,
    PlanMismatch,
    StaleRegistry,
    UnknownDestination,
)
from hookline_sender.engine.records import Retry, State
from hookline_sender.engine.registry import Changed
from tests.support import HANG

if TYPE_CHECKING:
    from tests.support_engine import Engine
    from tests.support_registry import Registry


def test_a_registered_destination_is_found_with_what_is_sealed(registry: Registry) -> None:
    entry = registry.register("acme", "t1", sealed=b"\0\xff secret")
    found = registry.found("acme")
    assert found is not None
    assert (found.tenant, found.entry, found.sealed) == ("t1", entry, b"\0\xff secret")
    assert registry.tenant("t1").entries == (entry,)
    assert registry.tenant("t2").entries == registry.tenant().entries == ()


def test_a_publication_matched_with_an_older_registry_is_stale_and_writes_nothing(registry: Registry) -> None:
    before = registry.tenant("t1")
    registry.register("acme", "t1")
    stored = registry.engine.dump()
    with pytest.raises(StaleRegistry):
        registry.publish("k", "t1", seen=before)
    assert registry.engine.dump() == stored
    assert len(registry.publish("k", "t1").lanes) == 1


@pytest.mark.parametrize("change", ["remove", "pause", "configure"])
def test_every_change_of_a_destination_makes_what_was_seen_before_stale(registry: Registry, change: str) -> None:
    entry = registry.register("acme")
    before = registry.tenant()
    if change == "configure":
        registry.configure(registry.draft("acme", decided_on=str(entry.version)))
    else:
        getattr(registry, change)("acme")
    with pytest.raises(StaleRegistry):
        registry.publish("k", seen=before)


def test_removing_one_of_several_makes_what_was_seen_before_stale(registry: Registry) -> None:
    registry.register("acme")
    registry.register("other")
    before = registry.tenant()
    registry.remove("acme")
    with pytest.raises(StaleRegistry):
        registry.publish("k", seen=before)


def test_another_tenants_changes_make_nothing_stale(registry: Registry) -> None:
    registry.register("acme", "t1")
    before = registry.tenant("t1")
    registry.register("other", "t2")
    assert len(registry.publish("k", "t1", seen=before).lanes) == 1


def test_what_other_tenants_have_registered_costs_a_publication_nothing(registry: Registry) -> None:
    registry.register("acme", "t1")
    registry.publish("first", "t1")

    def cost(key: str) -> int:
        seen, before = registry.tenant("t1"), commands_run(registry.engine)
        registry.publish(key, "t1", seen=seen)
        return commands_run(registry.engine) - before

    alone = cost("alone")
    for number in range(100):
        registry.register(f"other-{number}", f"t{2 + number % 7}")
    assert cost("among others") == alone


def commands_run(engine: Engine) -> int:
    """How many commands the server has run for scripts and clients."""
    return sum(int(each["calls"]) for name, each in engine.redis.info("commandstats").items() if "info" not in name)


def test_a_repeat_is_answered_whatever_has_become_of_the_registry(registry: Registry) -> None:
    registry.register("acme")
    seen = registry.tenant()
    first = registry.publish("k", seen=seen)
    registry.register("other")
    again = registry.publish("k", seen=seen)
    assert (again.duplicate, again.lanes) == (True, first.lanes)


def test_an_id_is_unique_in_the_namespace(registry: Registry) -> None:
    registry.register("acme", "t1")
    with pytest.raises(InvalidDestination, match="another tenant"):
        registry.register("acme", "t2")
    with pytest.raises(InvalidDestination, match="another webhook"):
        registry.register("acme", "t1", binding="audit")


def test_registering_is_decided_on_the_tenant_as_it_is(registry: Registry) -> None:
    draft = registry.draft("acme")
    registry.register("other")
    with pytest.raises(Changed):
        registry.write(draft)
    assert registry.found("acme") is None


def test_registering_sent_twice_changes_nothing_and_answers_alike(registry: Registry) -> None:
    draft = registry.draft("acme")
    first, stored = registry.write(draft), registry.engine.dump()
    assert registry.write(draft) == first
    assert registry.engine.dump() == stored


def test_a_change_is_decided_on_the_version_that_is_there(registry: Registry) -> None:
    entry = registry.register("acme")
    mine, theirs = (registry.draft("acme", decided_on=str(entry.version)) for _ in range(2))
    changed = registry.configure(theirs)
    assert changed.version > entry.version
    assert registry.configure(theirs) == changed
    with pytest.raises(Changed):
        registry.configure(mine)


def test_neither_registers_in_a_namespace_that_was_never_bound(registry: Registry) -> None:
    with pytest.raises(PlanMismatch):
        registry.write(registry.draft("acme"), fingerprint="0" * 16)


@pytest.mark.parametrize("change", ["remove", "pause", "resume"])
def test_what_is_not_registered_cannot_be_changed(registry: Registry, change: str) -> None:
    with pytest.raises(UnknownDestination, match="nobody"):
        getattr(registry, change)("nobody")
    with pytest.raises(UnknownDestination, match="nobody"):
        registry.configure(registry.draft("nobody"))


def test_a_claim_tells_the_version_of_its_destination(registry: Registry) -> None:
    first = registry.register("acme")
    registry.publish("k1")
    registry.publish("k2")
    assert registry.engine.one(slots=1).config == first.version
    second = registry.configure(registry.draft("acme", decided_on=str(first.version)))
    assert registry.engine.one(slots=1).config == second.version


def test_a_version_never_comes_back(registry: Registry) -> None:
    versions = [registry.register("acme").version]
    registry.remove("acme")
    registry.engine.advance(-3600)
    versions.append(registry.register("acme").version)
    assert versions[1] > versions[0]


def test_a_version_never_comes_back_after_the_namespace_was_emptied(registry: Registry) -> None:
    engine, before = registry.engine, registry.register("acme").version
    engine.redis.delete(*map(engine.key, engine.names()))
    engine.bind()
    engine.advance(1)
    assert registry.register("acme").version > before


def test_a_new_concurrency_holds_for_what_is_queued_already(registry: Registry) -> None:
    entry = registry.register("acme", limits="1")
    for number in range(3):
        registry.publish(f"k{number}", limits="1")
    assert len(registry.engine.claim(slots=3)) == 1
    registry.configure(registry.draft("acme", limits="3", decided_on=str(entry.version)))
    assert len(registry.engine.claim(slots=3)) == 2


def test_a_paused_destination_gets_tasks_and_no_attempts_until_it_is_resumed(registry: Registry) -> None:
    registry.register("acme")
    registry.register("other")
    registry.publish("before")
    registry.pause("acme")
    registry.publish("after")
    assert {task.destination for task in registry.engine.claim()} == {"other"}
    assert registry.engine.inspect(registry.id_of("after", "acme")).state is State.WAITING
    registry.resume("acme")
    assert [task.event_key for task in registry.engine.claim()] == ["before", "after"]


@pytest.mark.parametrize(("change", "wakes"), [("resume", True), ("pause", False)])
def test_resuming_wakes_an_idle_worker_and_pausing_does_not(registry: Registry, change: str, *, wakes: bool) -> None:
    registry.register("acme")
    registry.publish("k")
    (registry.pause if wakes else registry.resume)("acme")
    with registry.engine.redis.pubsub(ignore_subscribe_messages=True) as channel:
        channel.subscribe(registry.layout.wake)
        channel.get_message(timeout=HANG)
        getattr(registry, change)("acme")
        assert (channel.get_message(timeout=HANG if wakes else 0.05) is not None) == wakes


def test_an_attempt_that_runs_when_its_destination_is_paused_goes_on_and_its_retry_waits(registry: Registry) -> None:
    registry.register("acme")
    registry.publish("k")
    task = registry.engine.one()
    registry.pause("acme")
    assert registry.engine.settle(task, Retry("http_5xx", 1, 500), delay=5) == "waiting"
    registry.engine.advance(6)
    assert registry.engine.claim() == ()
    registry.resume("acme")
    assert registry.engine.one().attempt == 2


def test_pausing_and_resuming_twice_changes_nothing(registry: Registry) -> None:
    registry.register("acme")
    registry.publish("k")
    for change in (registry.pause, registry.resume):
        change("acme")
        stored = registry.engine.dump()
        change("acme")
        assert registry.engine.dump() == stored


def test_a_pause_outlives_a_registration_anew(registry: Registry) -> None:
    registry.register("acme")
    registry.pause("acme")
    assert registry.register("acme").paused
    registry.publish("k")
    assert registry.engine.claim() == ()


def test_a_tenant_that_comes_back_has_another_revision(registry: Registry) -> None:
    registry.register("acme")
    seen = registry.tenant()
    registry.remove("acme")
    registry.register("acme")
    with pytest.raises(StaleRegistry):
        registry.publish("k", seen=seen)
