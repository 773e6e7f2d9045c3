"""What a deployment reads, refuses and hides."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline_sender import Deployment, DestinationRef, InvalidDeployment, NotGranted, Plan
from hookline_sender.deployment import default_ref

SECRET = "redis://user:hush@redis.internal:6379/3"
DEFAULTS = Deployment(SECRET, namespace="shop")


def plan() -> Plan:
    made = Plan("shop")
    made.webhook("billing-eu")
    return made


def test_the_environment_describes_a_deployment() -> None:
    deployment = Deployment.from_env(
        plan(),
        {
            "HOOKLINE_REDIS_URL": SECRET,
            "REDIS_URL": "redis://elsewhere",
            "HOOKLINE_NAMESPACE": "staging",
            "HOOKLINE_GRANTS": "publish:order.paid, publish:order.refunded  cancel:webhook:*",
            "HOOKLINE_DURABILITY": "asserted",
            "HOOKLINE_ALLOW_LOOPBACK_HTTP": "1",
            "HOOKLINE_MAX_RECORDS": "100000000",
            "HOOKLINE_MAX_PER_DESTINATION": "50000",
        },
    )
    assert (deployment.redis_url, deployment.namespace, deployment.durability) == (SECRET, "staging", "asserted")
    assert deployment.grants == {"publish:order.paid", "publish:order.refunded", "cancel:webhook:*"}
    assert deployment.allow_loopback_http
    assert (deployment.max_records, deployment.max_per_destination, deployment.max_dead) == (100_000_000, 50_000, None)
    assert deployment.ref_of("billing-eu") == default_ref("billing-eu")


def test_the_environment_says_where_destinations_may_be() -> None:
    deployment = Deployment.from_env(
        plan(),
        {
            "REDIS_URL": SECRET,
            "HOOKLINE_ALLOW_ADDRESSES": "10.1.0.0/16, fd00::/8 192.168.1.7",
            "HOOKLINE_UNSAFE_ALLOW_PRIVATE_ADDRESSES": "0",
            "HOOKLINE_DESTINATION_PORTS": "443,8443",
        },
    )
    assert deployment.allow_addresses == ("10.1.0.0/16", "fd00::/8", "192.168.1.7")
    assert deployment.destination_ports == frozenset({443, 8443})
    policy = deployment.address_policy
    assert (policy.allows("10.1.2.3"), policy.allows("10.2.2.3"), policy.allows_port(444)) == (True, False, False)


def test_a_changed_deployment_has_the_policy_it_says() -> None:
    private = replace(DEFAULTS, unsafe_allow_private_addresses=True)
    assert (DEFAULTS.address_policy.allows("10.0.0.1"), private.address_policy.allows("10.0.0.1")) == (False, True)
    assert not private.address_policy.allows("169.254.169.254")


def test_an_unset_environment_is_strict_and_named_after_the_plan() -> None:
    deployment = Deployment.from_env(plan(), {"REDIS_URL": SECRET})
    assert deployment == Deployment(SECRET, namespace="shop", destinations={"billing-eu": default_ref("billing-eu")})
    assert (deployment.grants, deployment.durability, deployment.allow_loopback_http) == (
        frozenset(),
        "verified",
        False,
    )


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({}, "HOOKLINE_REDIS_URL"),
        ({"HOOKLINE_DURABILITY": "yes"}, "HOOKLINE_DURABILITY"),
        ({"HOOKLINE_ALLOW_LOOPBACK_HTTP": "true"}, "HOOKLINE_ALLOW_LOOPBACK_HTTP"),
        ({"HOOKLINE_ALLOW_ADDRESSES": "10.0.0.1/8"}, "HOOKLINE_ALLOW_ADDRESSES"),
        ({"HOOKLINE_ALLOW_ADDRESSES": "shop.internal"}, "HOOKLINE_ALLOW_ADDRESSES"),
        ({"HOOKLINE_DESTINATION_PORTS": "443 https"}, "HOOKLINE_DESTINATION_PORTS"),
        ({"HOOKLINE_DESTINATION_PORTS": "443 99999"}, "HOOKLINE_DESTINATION_PORTS"),
        ({"HOOKLINE_UNSAFE_ALLOW_PRIVATE_ADDRESSES": "yes"}, "HOOKLINE_UNSAFE_ALLOW_PRIVATE_ADDRESSES"),
        ({"HOOKLINE_NAMESPACE": "A:B"}, "namespace"),
        ({"HOOKLINE_GRANTS": "publish"}, "publish"),
        ({"HOOKLINE_MAX_RECORDS": "0"}, "HOOKLINE_MAX_RECORDS"),
        ({"HOOKLINE_MAX_PER_DESTINATION": "many"}, "HOOKLINE_MAX_PER_DESTINATION"),
        ({"HOOKLINE_MAX_DEAD": "9" * 400}, "HOOKLINE_MAX_DEAD"),
    ],
)
def test_a_wrong_environment_is_refused_by_name(environ: dict[str, str], named: str) -> None:
    redis = {"REDIS_URL": SECRET} if environ else {}
    with pytest.raises(InvalidDeployment, match=named):
        Deployment.from_env(plan(), redis | environ)


@pytest.mark.parametrize(
    "wrong",
    [
        {"redis_url": "http://redis.internal"},
        {"redis_url": ""},
        {"namespace": ""},
        {"namespace": "a" * 65},
        {"durability": "maybe"},
        {"destinations": {"billing": "https://billing.example/"}},
        {"grants": "publish:order.paid"},
        {"grants": {"publish order.paid"}},
        {"lease": 0.1},
        {"lease": float("inf")},
        {"retention": 59},
        {"dead_retention": 30 * 86_400 + 1},
        {"max_records": 0},
        {"max_records": 1e5},
        {"max_per_destination": 0},
        {"max_per_destination": 5.0},
        {"max_dead": 0},
        {"max_dead": True},
        {"allow_addresses": "10.0.0.0/8"},
        {"destination_ports": {0}},
        {"min_replicas": -1},
    ],
    ids=str,
)
def test_a_setting_out_of_range_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidDeployment):
        Deployment(**{"redis_url": SECRET, "namespace": "shop", **wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["https://shop.example/hook?key=hush", "hex:" + "ab" * 32, "", "A B", "1A"])
def test_a_value_where_a_variable_name_belongs_is_refused_unshown(value: str) -> None:
    with pytest.raises(InvalidDeployment, match="not their values") as caught:
        DestinationRef(url_env=value, signing_key_env="KEY")
    assert "hush" not in str(caught.value)


def test_the_redis_url_is_in_no_repr_and_no_error() -> None:
    assert "hush" not in repr(Deployment(SECRET, namespace="shop"))
    with pytest.raises(InvalidDeployment) as caught:
        Deployment("x" + SECRET, namespace="shop")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["redis://:hush/x@h", "redis://u:hush#x@h:1", "redis://:hush?x@h", "redis://:hush@[::1", "rediss://h?hush=1"],
)
def test_a_redis_url_that_cannot_be_read_is_refused_unshown(url: str) -> None:
    with pytest.raises(InvalidDeployment, match="HOOKLINE_REDIS_URL") as caught:
        Deployment.from_env(plan(), {"REDIS_URL": url})
    assert "hush" not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("grants", "grant"),
    [
        ({"publish:order.paid"}, "publish:order.paid"),
        ({"publish:order.*"}, "publish:order.paid"),
        ({"publish:*"}, "publish:order.paid"),
        ({"cancel:webhook:*"}, "cancel:webhook:billing"),
        ({"cancel:*"}, "cancel:webhook:billing"),
        ({"*"}, "bind:shop"),
    ],
)
def test_a_grant_or_a_pattern_over_it_is_enough(grants: set[str], grant: str) -> None:
    deployment = Deployment(SECRET, namespace="shop", grants=frozenset(grants))
    deployment.require(grant, "it")
    with pytest.raises(NotGranted):
        Deployment(SECRET, namespace="shop").require(grant, "it")


@pytest.mark.parametrize("grants", [set(), {"publish:order.refunded"}, {"publish:order"}, {"cancel:*"}], ids=str)
def test_a_missing_grant_says_which_line_to_add(grants: set[str]) -> None:
    deployment = Deployment(SECRET, namespace="shop", grants=frozenset(grants))
    with pytest.raises(
        NotGranted, match=r'^publishing "order\.paid" is not granted: add "publish:order\.paid" to grants'
    ):
        deployment.require("publish:order.paid", 'publishing "order.paid"')


@given(st.text(max_size=60))
def test_any_text_as_a_grant_is_taken_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidDeployment):
        assert Deployment(SECRET, namespace="shop", grants=frozenset({text})).grants == {text}


def test_durations_are_given_in_milliseconds_too() -> None:
    deployment = Deployment(SECRET, namespace="shop", lease=1.5, retention=60, dead_retention=61)
    assert (deployment.lease_ms, deployment.retention_ms, deployment.dead_retention_ms) == (1500, 60_000, 61_000)


def test_a_deployment_does_not_follow_changes_of_what_it_was_given() -> None:
    given = {"billing": DestinationRef("A", "B")}
    deployment = Deployment(SECRET, namespace="shop", destinations=given)
    given.clear()
    assert deployment.ref_of("billing") == DestinationRef("A", "B")


def test_limits_that_are_not_given_follow_from_the_namespaces_own() -> None:
    assert (DEFAULTS.most_per_destination, DEFAULTS.most_dead) == (5_000, 100_000)
    tiny = replace(DEFAULTS, max_records=10)
    assert (tiny.most_per_destination, tiny.most_dead) == (1, 10)
    own = replace(DEFAULTS, max_per_destination=7, max_dead=3)
    assert (own.most_per_destination, own.most_dead) == (7, 3)
