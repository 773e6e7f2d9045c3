"""What is sealed of destinations is put under another key, in place of exactly what was read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookline_sender.engine import registry as commands
from hookline_sender.engine.registry import START, Resealing

if TYPE_CHECKING:
    from tests.support_registry import Registry


def sealed(registry: Registry, name: str) -> bytes | None:
    found = registry.found(name)
    return None if found is None else found.sealed


def test_resealing_sent_twice_changes_nothing_and_answers_alike(registry: Registry) -> None:
    registry.register("acme", "t1", sealed=b"\0old")
    command = commands.reseal(registry.layout, [Resealing("acme", b"\0old", b"\0new")])
    assert registry.engine.run(command) == ()
    stored = registry.engine.dump()
    assert registry.engine.run(command) == ()
    assert registry.engine.dump() == stored
    assert sealed(registry, "acme") == b"\0new"


def test_what_was_changed_or_removed_meanwhile_is_left_as_it_is(registry: Registry) -> None:
    for name in ("a", "b", "c"):
        registry.register(name, sealed=b"theirs" if name == "b" else b"old")
    registry.remove("c")
    changes = [Resealing(name, b"old", b"new") for name in ("a", "b", "c", "never was")]
    assert registry.engine.run(commands.reseal(registry.layout, changes)) == (1,)
    assert [sealed(registry, name) for name in ("a", "b", "c")] == [b"new", b"theirs", None]


def test_a_walk_meets_every_destination_and_no_removed_one(registry: Registry) -> None:
    names = {f"d-{number}" for number in range(600)}
    for name in names:
        registry.register(name, f"t-{name}")
    registry.publish("k", "t-d-0")
    registry.remove("d-0")
    walked = registry.engine.run(commands.walk(registry.layout, START, 50))
    met = list(walked.entries)
    while walked.cursor != START:
        walked = registry.engine.run(commands.walk(registry.layout, walked.cursor, 50))
        met += walked.entries
    assert {(tenant, entry.id) for tenant, entry in met} == {(f"t-{name}", name) for name in names - {"d-0"}}
    assert walked.registered == 600
