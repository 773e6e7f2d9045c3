"""What a worker reads of registered destinations, and when."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from hookline_sender import Deployment, InvalidDeployment, Plan, SigningKey, UnknownDestination
from hookline_sender.attempts import Attempts, Claim, RedisClock
from hookline_sender.engine.layout import Layout
from hookline_sender.engine.records import Released
from hookline_sender.engine.registry import Entry, Found, Lookup
from hookline_sender.registered import REMEMBERED, Registered
from hookline_sender.registration import Secrets, TimedKey
from hookline_sender.vault import Vault
from tests.support import run
from tests.support_customers import ENVIRON, OTHER_KEK, destination
from tests.support_sender import TASK, impatient

if TYPE_CHECKING:
    from hookline_sender.engine.records import ClaimedTask, Outcome
    from hookline_sender.engine.store import RedisStore

DEPLOYMENT = Deployment("redis://r", namespace="market")
WEBHOOK = Plan("market").webhook("customers", subscribers=True)
OLD, NEW = SigningKey.generate(), SigningKey.generate()


class Store:
    """A registry in memory; `reads` has the ids of every lookup."""

    layout = Layout("market")

    def __init__(self, *versions: tuple[str, int]) -> None:
        self.reads: list[tuple[str, ...]] = []
        self.there = {name: found(name, version) for name, version in versions}

    async def run(self, command: Any) -> Lookup:
        self.reads.append(command.args)
        return Lookup(0, 0, tuple(self.there.get(name) for name in command.args))


def found(name: str, version: int, **changes: Any) -> Found:
    secrets = Secrets(f"https://{name}.example/", (("x-a", "b"),), (TimedKey(NEW), TimedKey(OLD, 1000)))
    made = Vault.of(DEPLOYMENT, ENVIRON).draft(WEBHOOK, destination(name, **changes), secrets, decided_on="0")
    return Found("", Entry(name, version, False, made.lane, made.public), made.sealed)  # noqa: FBT003 - not paused


def registered(store: Store, environ: dict[str, str] | None = None) -> Registered:
    return Registered(cast("RedisStore", store), DEPLOYMENT, environ or dict(ENVIRON))


def task(name: str, config: int) -> ClaimedTask:
    return replace(TASK, destination=name, config=config)


def test_a_turns_destinations_are_read_together_and_once_per_version() -> None:
    store = Store(("a", 1), ("b", 1))
    known = registered(store)

    async def go() -> None:
        await known.load([task("b", 1), task("a", 1), task("a", 1)])
        await known.load([task("a", 1), task("static", 0)])
        store.there["a"] = found("a", 2)
        await known.load([task("a", 2), task("b", 1)])
        await known.load([task("a", 1)])  # claimed before the change, and sent by what holds now

    run(go())
    assert store.reads == [("a", "b"), ("a",)]


def test_a_destination_is_opened_with_the_keys_that_sign_at_that_moment() -> None:
    known = registered(Store(("a", 1)))
    run(known.load([task("a", 1)]))
    during, after = (known.resolve(task("a", 1), profile="axiom", now_ms=now) for now in (999, 1000))
    assert (during.url, during.headers) == ("https://a.example/", ((b"x-a", b"b"),))
    assert (during.keys, after.keys) == ((NEW, OLD), (NEW,))


def test_a_destinations_own_profile_comes_before_its_webhooks() -> None:
    store = Store(("a", 1), ("b", 1))
    store.there["b"] = found("b", 1, profile="svix")
    known = registered(store)
    run(known.load([task("a", 1), task("b", 1)]))
    profiles = [known.resolve(task(name, 1), profile="axiom", now_ms=0).profile for name in "ab"]
    assert profiles == ["axiom", "svix"]


def test_what_was_removed_or_never_read_is_unknown() -> None:
    known = registered(Store())
    with pytest.raises(UnknownDestination):
        known.resolve(task("a", 1), profile="axiom", now_ms=0)
    run(known.load([task("a", 1)]))
    with pytest.raises(UnknownDestination):
        known.resolve(task("a", 1), profile="axiom", now_ms=0)


def test_a_task_whose_destination_went_between_claim_and_attempt_is_given_back() -> None:
    plan = Plan("market")
    plan.webhook("customers", subscribers=True)
    nowhere: Any = None
    attempts = Attempts(plan, DEPLOYMENT, nowhere, registered=registered(Store()))
    held = replace(task("a", 1), binding="customers")
    now = time.monotonic()
    claim = Claim(held, impatient(), now + 60, RedisClock(held.claimed_at_ms, now))

    async def go() -> Outcome:
        await attempts.prepare([held])
        return await attempts.make(claim)

    assert run(go()) == Released()


def test_a_key_encryption_key_that_is_set_later_opens_what_was_read_before() -> None:
    environ = {"HOOKLINE_KEY_ENCRYPTION_KEY": OTHER_KEK}
    known = registered(Store(("a", 1)), environ)
    run(known.load([task("a", 1)]))
    with pytest.raises(InvalidDeployment, match="HOOKLINE_KEY_ENCRYPTION_KEY"):
        known.resolve(task("a", 1), profile="axiom", now_ms=0)
    environ |= ENVIRON
    assert known.resolve(task("a", 1), profile="axiom", now_ms=0).url == "https://a.example/"


def test_what_no_key_opens_is_read_again_for_the_next_attempt_because_it_may_be_sealed_anew() -> None:
    environ = {"HOOKLINE_KEY_ENCRYPTION_KEY": OTHER_KEK}
    store = Store(("a", 1))
    known = registered(store, environ)
    for _ in range(2):
        run(known.load([task("a", 1)]))
        with pytest.raises(InvalidDeployment):
            known.resolve(task("a", 1), profile="axiom", now_ms=0)
    assert store.reads == [("a",), ("a",)]


def test_a_worker_remembers_a_bounded_number_of_destinations() -> None:
    store = Store()
    one = found("a", 1)
    store.there = {f"d{n}": one for n in range(REMEMBERED + 64)}
    known = registered(store)

    async def go() -> None:
        names = list(store.there)
        for start in range(0, len(names), 64):
            await known.load([task(name, 1) for name in names[start : start + 64]])

    run(go())
    assert len(known._known) == REMEMBERED
