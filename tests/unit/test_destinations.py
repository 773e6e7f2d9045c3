"""Static destinations, read from the environment at each attempt."""

from __future__ import annotations

import pytest

from hookline_sender import (
    Deployment,
    DestinationRef,
    HooklineError,
    InvalidDeployment,
    Plan,
    SigningKey,
    UnsafeDestination,
    Worker,
)
from hookline_sender.destinations import resolve

OLD, NEW = "hex:" + "ab" * 32, "hex:" + "cd" * 32
URL = "https://shop.example/hook?token=hush"


def deployment(*, allow_loopback_http: bool = False) -> Deployment:
    return Deployment("redis://r", namespace="shop", allow_loopback_http=allow_loopback_http)


def environ(url: str = URL, key: str = OLD) -> dict[str, str]:
    return {"HOOKLINE_WEBHOOK_BILLING_URL": url, "HOOKLINE_WEBHOOK_BILLING_KEY": key}


def test_url_and_keys_come_from_the_environment() -> None:
    found = resolve(deployment(), "billing", environ(key=f"{NEW} {OLD}"))
    assert (found.name, found.url, found.profile) == ("billing", URL, "axiom")
    assert found.keys == (SigningKey.parse(NEW), SigningKey.parse(OLD))


def test_the_next_attempt_sees_a_changed_environment() -> None:
    env = environ()
    assert resolve(deployment(), "billing", env).keys == (SigningKey.parse(OLD),)
    env.update(environ(url="https://new.example/", key=NEW))
    found = resolve(deployment(), "billing", env)
    assert (found.url, found.keys) == ("https://new.example/", (SigningKey.parse(NEW),))


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environ().items():
        monkeypatch.setenv(name, value)
    assert resolve(deployment(), "billing").url == URL


def test_a_deployment_can_name_other_variables() -> None:
    named = Deployment("redis://r", namespace="shop", destinations={"billing": DestinationRef("A_URL", "A_KEY")})
    assert resolve(named, "billing", {"A_URL": URL, "A_KEY": OLD}).url == URL


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"HOOKLINE_WEBHOOK_BILLING_URL": ""}, "HOOKLINE_WEBHOOK_BILLING_URL"),
        ({"HOOKLINE_WEBHOOK_BILLING_URL": "http://shop.example/?token=hush"}, "HOOKLINE_WEBHOOK_BILLING_URL"),
        ({"HOOKLINE_WEBHOOK_BILLING_URL": "hush"}, "HOOKLINE_WEBHOOK_BILLING_URL"),
        ({"HOOKLINE_WEBHOOK_BILLING_KEY": " "}, "HOOKLINE_WEBHOOK_BILLING_KEY"),
        ({"HOOKLINE_WEBHOOK_BILLING_KEY": "hush"}, "HOOKLINE_WEBHOOK_BILLING_KEY"),
        ({"HOOKLINE_WEBHOOK_BILLING_KEY": "hex:hush"}, "HOOKLINE_WEBHOOK_BILLING_KEY"),
    ],
)
def test_a_missing_or_malformed_variable_is_named_and_never_shown(wrong: dict[str, str], named: str) -> None:
    with pytest.raises((InvalidDeployment, UnsafeDestination), match=named) as caught:
        resolve(deployment(), "billing", environ() | wrong)
    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_loopback_http_needs_its_switch() -> None:
    local = environ(url="http://127.0.0.1:8000/hook")
    with pytest.raises(UnsafeDestination, match="allow_loopback_http"):
        resolve(deployment(), "billing", local)
    assert resolve(deployment(allow_loopback_http=True), "billing", local).url == "http://127.0.0.1:8000/hook"


@pytest.mark.parametrize("url", ["https://10.0.0.1/hush", "https://localhost/hush", "https://shop.example:25/hush"])
def test_an_address_or_port_that_is_not_allowed_names_the_variable_only(url: str) -> None:
    with pytest.raises(UnsafeDestination, match=r"^HOOKLINE_WEBHOOK_BILLING_URL: ") as caught:
        resolve(deployment(), "billing", environ(url=url))
    assert "hush" not in str(caught.value)


def test_an_unknown_profile_is_an_error_of_ours() -> None:
    with pytest.raises(HooklineError, match="profile"):
        resolve(deployment(), "billing", environ(), profile="smoke")


def test_a_destination_shows_neither_url_nor_keys() -> None:
    shown = repr(resolve(deployment(), "billing", environ()))
    assert shown == "ResolvedDestination(name='billing', profile='axiom')"


def test_a_worker_says_beforehand_what_its_attempts_would_miss() -> None:
    plan = Plan("shop")
    plan.webhook("billing")
    plan.webhook("customers", subscribers=True)
    deployment = Deployment("redis://r", namespace="shop")
    url, kek = Worker(plan, deployment, environ={}).missing()
    assert ("HOOKLINE_WEBHOOK_BILLING_URL" in url, "HOOKLINE_KEY_ENCRYPTION_KEY" in kek) == (True, True)
    hidden = SigningKey.generate().reveal()
    assert Worker(plan, deployment, environ=environ() | {"HOOKLINE_KEY_ENCRYPTION_KEY": hidden}).missing() == ()
