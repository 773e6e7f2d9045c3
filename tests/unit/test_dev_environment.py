from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pydantic import BaseModel

from hookline_sender import Deployment, InvalidDeployment, InvalidSigningKey, Plan, SigningKey
from hookline_sender.cli.dev_environment import Setup, exports

if TYPE_CHECKING:
    from collections.abc import Mapping

REDIS = "unix:///run/dev?db=0"
RECEIVER = "http://127.0.0.1:1234"


class Order(BaseModel):
    order_id: str


def shop() -> Plan:
    plan = Plan("shop")
    paid = plan.event("order.paid", Order)
    plan.event("order.lost", Order)
    plan.webhook("billing", paid)
    plan.webhook("crm-eu", profile="svix")
    return plan


def variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    return Setup.of(shop(), environ or {}, REDIS).variables(RECEIVER)


def test_the_variables_are_a_deployment_that_may_do_all_the_plan_can() -> None:
    deployment = Deployment.from_env(shop(), variables())
    assert (deployment.redis_url, deployment.namespace, deployment.allow_loopback_http) == (REDIS, "shop", True)
    for grant in ("publish:order.paid", "publish:order.lost", "cancel:webhook:billing", "register:webhook:crm-eu"):
        deployment.require(grant, "it")


def test_each_webhook_has_a_url_and_a_key_of_its_profile() -> None:
    given = variables()
    assert given["HOOKLINE_WEBHOOK_CRM_EU_URL"] == f"{RECEIVER}/hooks/crm-eu"
    assert SigningKey.parse(given["HOOKLINE_WEBHOOK_BILLING_KEY"]).size_bytes == 32
    assert given["HOOKLINE_WEBHOOK_CRM_EU_KEY"].startswith("whsec_")


def test_a_webhook_whose_url_is_set_is_left_alone() -> None:
    own = {"HOOKLINE_WEBHOOK_BILLING_URL": "http://127.0.0.1:8000/hooks", "HOOKLINE_WEBHOOK_BILLING_KEY": "k" * 32}
    setup = Setup.of(shop(), own, REDIS)
    assert (setup.theirs, setup.ours) == (("billing",), ("crm-eu",))
    assert setup.variables(RECEIVER).items() >= own.items()


def test_a_webhook_of_registered_destinations_needs_neither_url_nor_key() -> None:
    plan = shop()
    plan.webhook("customers", subscribers=True)
    setup = Setup.of(plan, {}, REDIS)
    assert (setup.registered, setup.ours) == (("customers",), ("billing", "crm-eu"))
    assert "register:webhook:customers" in setup.grants
    assert not any("CUSTOMERS" in variable for variable in setup.variables(RECEIVER))


def test_a_key_that_is_set_is_the_receivers_too() -> None:
    own = {"HOOKLINE_WEBHOOK_BILLING_KEY": "k" * 32}
    setup = Setup.of(shop(), own, REDIS)
    assert setup.for_receiver()["HOOKLINE_WEBHOOK_BILLING_KEY"] == "k" * 32
    assert setup.variables(RECEIVER)["HOOKLINE_WEBHOOK_BILLING_KEY"] == "k" * 32


def test_a_url_without_its_key_is_answered_with_the_line_to_paste() -> None:
    with pytest.raises(InvalidDeployment) as caught:
        variables({"HOOKLINE_WEBHOOK_BILLING_URL": "http://127.0.0.1:8000/hooks"})
    assert "export HOOKLINE_WEBHOOK_BILLING_KEY=$(hookline keygen)" in str(caught.value)


def test_a_key_that_is_none_names_its_variable() -> None:
    with pytest.raises(InvalidSigningKey, match="HOOKLINE_WEBHOOK_BILLING_KEY"):
        variables({"HOOKLINE_WEBHOOK_BILLING_KEY": "short"})


def test_a_namespace_and_a_sealing_key_that_are_set_stay() -> None:
    own = {"HOOKLINE_NAMESPACE": "mine", "HOOKLINE_KEY_ENCRYPTION_KEY": SigningKey.generate().reveal()}
    assert variables(own).items() >= own.items()


def test_the_lines_to_paste_are_quoted_for_a_shell() -> None:
    lines = list(exports({"HOOKLINE_REDIS_URL": REDIS, "HOOKLINE_NAMESPACE": "shop"}))
    assert lines == [f"export HOOKLINE_REDIS_URL='{REDIS}'", "export HOOKLINE_NAMESPACE=shop"]


def test_no_repr_shows_a_key() -> None:
    setup = Setup.of(shop(), {}, REDIS)
    assert not any(key in repr(setup) for key in setup.keys.values())


def test_a_url_without_its_key_is_answered_with_a_key_of_the_profile() -> None:
    with pytest.raises(InvalidDeployment, match=r"hookline keygen --scheme svix\)"):
        Setup.of(shop(), {"HOOKLINE_WEBHOOK_CRM_EU_URL": "https://crm.example"}, REDIS)
