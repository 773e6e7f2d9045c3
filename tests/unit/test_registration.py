"""What may be registered, how it is stored, and whom an event reaches."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline_sender import Destination, InvalidDestination, InvalidPlan, InvalidSigningKey, Plan, SigningKey
from hookline_sender.egress import transport, urls
from hookline_sender.engine.registry import Entry, TenantEntries
from hookline_sender.enrolment import check_events, keys_to_register, rotated
from hookline_sender.matching import Tenants, snapshot_of
from hookline_sender.registration import (
    MAX_TEXT,
    RESERVED,
    Secrets,
    TimedKey,
    decode_secrets,
    decode_subscription,
    encode_secrets,
    encode_subscription,
    matches,
)
from tests.support_customers import destination, market

OLD, NEW = SigningKey.generate(), SigningKey.generate()
NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("pattern", "event", "expected"),
    [
        ("order.paid", "order.paid", True),
        ("order.paid", "order.paid.late", False),
        ("order.*", "order.paid", True),
        ("order.*", "order.line.added", True),
        ("order.*", "orders.paid", False),
        ("order.*", "order", False),
        ("*", "anything", True),
    ],
)
def test_a_pattern_stands_for_a_name_its_beginning_or_everything(pattern: str, event: str, *, expected: bool) -> None:
    assert matches(pattern, event) is expected


@pytest.mark.parametrize("pattern", ["", "order*", "*.paid", "order.*.paid", "**", "Order.*", "order paid", "order.**"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidDestination):
        destination(events=[pattern])


@pytest.mark.parametrize("events", [[], "order.paid", ["a"] * 0, [f"e{n}" for n in range(65)]])
def test_events_are_a_list_of_1_to_64(events: Any) -> None:
    with pytest.raises(InvalidDestination, match="1 to 64"):
        destination(events=events)


@pytest.mark.parametrize("name", ["", "-a", "a b", "a/b", "ä", "a" * 129, "a\n"])
def test_an_id_has_only_characters_that_need_no_escaping(name: str) -> None:
    with pytest.raises(InvalidDestination, match="id"):
        destination(name)


LIMITS = ("concurrency", "rate", "max_backlog")


@pytest.mark.parametrize("field", ["id", "webhook", "url", "events", "tenant", "headers", "profile", *LIMITS])
@pytest.mark.parametrize("given", [7, 10**5000, 1.5, b"x", [7], {7: "x"}, {"x": 7}, "\ud800", object()], ids=type)
def test_what_is_not_of_its_type_is_refused_and_not_a_crash(field: str, given: Any) -> None:
    if (field in LIMITS and given == 7) or (field, given) == ("rate", 1.5):
        return
    with pytest.raises(InvalidDestination):
        Destination(**{"id": "acme", "webhook": "customers", "url": "https://x.example/"} | {field: given})


@pytest.mark.parametrize(
    "changes", [{"tenant": ""}, {"tenant": "t" * 257}, {"concurrency": 0}, {"concurrency": 1025}, {"concurrency": True}]
)
def test_what_is_out_of_its_range_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidDestination):
        destination(**changes)


@pytest.mark.parametrize(
    "name",
    [
        *("Host", "content-length", "Transfer-Encoding", "connection", "content-type", "user-agent", "traceparent"),
        *("x-axiom-signature", "X-Axiom-Anything", "webhook-id", "svix-id", "a b", "a:b", "", "ä"),
    ],
)
def test_a_header_that_a_delivery_sets_itself_is_refused(name: str) -> None:
    with pytest.raises(InvalidDestination) as caught:
        destination(headers={name: "hush"})
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("value", ["hush\r\nx: y", "hush\n", " hush", "hush ", "hüsh", "hush\0", "h" * 5000])
def test_a_header_value_that_could_become_another_header_is_refused_and_never_shown(value: str) -> None:
    with pytest.raises(InvalidDestination) as caught:
        destination(headers={"x-token": value})
    assert "hush" not in str(caught.value)


def test_headers_are_few_and_each_once() -> None:
    with pytest.raises(InvalidDestination):
        destination(headers={f"x-{n}": "" for n in range(17)})
    with pytest.raises(InvalidDestination):
        destination(headers={"x-a": "1", "X-A": "2"})
    assert destination(headers={"X-A": "1"}).headers == {"x-a": "1"}


def test_every_url_that_may_be_registered_can_be_written() -> None:
    assert urls.MAX_URL_CHARACTERS <= MAX_TEXT


def test_whatever_a_transport_sets_is_reserved() -> None:
    assert {name.decode() for name in transport.RESERVED} <= RESERVED


@given(
    st.text(max_size=30),
    st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)), max_size=3),
    st.lists(st.tuples(st.binary(min_size=24, max_size=70), st.none() | st.integers(0, 1 << 48)), max_size=3),
)
def test_secrets_are_read_as_they_were_written(
    url: str, headers: list[tuple[str, str]], keys: list[tuple[bytes, int | None]]
) -> None:
    secrets = Secrets(url, tuple(headers), tuple(TimedKey(SigningKey(raw), until) for raw, until in keys))
    assert decode_secrets(encode_secrets(secrets)) == secrets


def test_an_asymmetric_key_is_kept_whole() -> None:
    pair = SigningKey.generate_ed25519()
    (kept,) = decode_secrets(encode_secrets(Secrets("u", (), (TimedKey(pair),)))).keys
    assert (kept.key, kept.key.can_sign) == (pair, True)


def test_the_public_text_says_who_subscribes_to_what_and_nothing_else() -> None:
    made = destination(events=["order.*"], concurrency=3, profile="svix", headers={"x-token": "hush"})
    text = encode_subscription(made)
    found = decode_subscription(text)
    assert (found.webhook, found.patterns, found.concurrency, found.profile) == ("customers", ("order.*",), 3, "svix")
    assert "hush" not in text
    assert "acme" not in text


def test_a_pattern_may_wait_for_events_to_come_but_a_name_must_be_there() -> None:
    selling = market()
    webhook = selling.plan.webhooks["customers"]
    check_events(selling.plan, webhook, destination(events=["invoice.*", "order.paid"]))
    with pytest.raises(InvalidDestination, match=r"carries no event \"invoice\.paid\""):
        check_events(selling.plan, webhook, destination(events=["invoice.paid"]))


def entries(*made: Destination) -> TenantEntries:
    listed = tuple(Entry(each.id, 7, False, f"lane-{each.id}", encode_subscription(each)) for each in made)  # noqa: FBT003
    return TenantEntries("7", listed)


def test_a_destination_takes_its_webhooks_concurrency_unless_it_has_its_own() -> None:
    webhook = market(concurrency=9).plan.webhooks["customers"]
    tenant = snapshot_of(entries(destination("b", concurrency=2), destination("a"), destination("c", events=["x.*"])))
    found = tenant.matching("order.paid", [webhook])
    assert [(each.destination, each.limits, each.config) for each in found] == [("a", "9", 7), ("b", "2", 7)]


def test_tenants_are_forgotten_from_the_one_used_longest_ago() -> None:
    tenants = Tenants(limit=2)
    for name in ("one", "two"):
        tenants.learn(name, entries())
    assert tenants.of("one").loaded
    tenants.learn("three", entries())
    assert [tenants.of(name).loaded for name in ("one", "two", "three")] == [True, False, True]


def test_keys_stay_unless_one_is_given_and_those_whose_time_is_over_go() -> None:
    before = (TimedKey(NEW), TimedKey(OLD, NOW))
    assert keys_to_register("axiom", None, before, NOW - 1) == before
    assert keys_to_register("axiom", None, before, NOW) == before[:1]
    assert keys_to_register("axiom", OLD, before, NOW) == (TimedKey(OLD),)
    assert len(keys_to_register("axiom", None, (), NOW)) == 1


def test_a_change_of_profile_that_the_keys_do_not_fit_is_refused() -> None:
    pair = TimedKey(SigningKey.generate_ed25519())
    with pytest.raises(InvalidSigningKey):
        keys_to_register("axiom", None, (pair,), NOW)


def test_a_rotation_ends_the_keys_before_it_and_never_prolongs_one() -> None:
    ends_soon = SigningKey.generate()
    before = (TimedKey(OLD), TimedKey(ends_soon, NOW + 5))
    keys = rotated("axiom", NEW, before, NOW, overlap=10.0)
    assert keys == (TimedKey(NEW), TimedKey(OLD, NOW + 10_000), TimedKey(ends_soon, NOW + 5))
    assert rotated("axiom", NEW, before, NOW, overlap=0) == (TimedKey(NEW),)


def test_rotating_to_a_key_that_signs_already_makes_it_the_first_one() -> None:
    assert rotated("axiom", OLD, (TimedKey(NEW), TimedKey(OLD, NOW + 5)), NOW, overlap=1) == (
        TimedKey(OLD),
        TimedKey(NEW, NOW + 1000),
    )


def test_a_webhook_for_subscribers_has_no_destination_of_its_own() -> None:
    plan = Plan("market")
    made = plan.webhook("customers", subscribers=True)
    assert made.subscribers
    with pytest.raises(InvalidPlan):
        plan.webhook("customers")


@pytest.mark.parametrize("public", ["", "[]", "{}", '{"webhook":"customers"}', "\ufffd"])
def test_a_registration_somebody_wrote_over_is_named_and_never_left_out(public: str) -> None:
    entries = TenantEntries("1", (Entry("acme", 1, paused=False, lane="l" * 16, public=public),))
    with pytest.raises(InvalidDestination, match="'acme' cannot be read"):
        snapshot_of(entries)
