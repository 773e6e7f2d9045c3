"""Whatever a newcomer forgets is answered with one sentence that holds the line to paste."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from hookline_receiver import Receiver, RedisLedger
from hookline_sender import Deployment, HooklineError, Plan, Publisher, SigningKey, SyncPublisher, destinations
from hookline_sender.cli.loading import Target, find, load
from hookline_sender.sealing import Sealer
from tests.support import HANG, free_port, python, run, server
from tests.support_cli import SHOP, finished, hookline, said

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class OrderPaid(BaseModel):
    order_id: str


plan = Plan("shop")
order_paid = plan.event("order.paid", OrderPaid)
order_lost = plan.event("order.lost", OrderPaid)
plan.webhook("billing", order_paid)
PAID: Any = order_paid  # what follows is what a type checker would have refused
ORDER = OrderPaid(order_id="42")


@pytest.fixture
def environ(redis_url: str, namespace: str) -> dict[str, str]:
    """Everything that the shop needs; each test takes something away."""
    return {
        "HOOKLINE_REDIS_URL": redis_url,
        "HOOKLINE_NAMESPACE": namespace,
        "HOOKLINE_GRANTS": "publish:order.paid publish:order.lost",
        "HOOKLINE_ALLOW_LOOPBACK_HTTP": "1",
        "HOOKLINE_WEBHOOK_BILLING_URL": "http://127.0.0.1:8000/hooks/shop",
        "HOOKLINE_WEBHOOK_BILLING_KEY": "k" * 32,
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")
    return tmp_path


def complaint(act: Callable[[], object]) -> str:
    with pytest.raises(HooklineError) as caught:
        act()
    return str(caught.value)


def publishing(environ: dict[str, str], *arguments: Any, **options: Any) -> str:
    """What is said when that is published; both publishers say the same."""

    async def go() -> None:
        async with Publisher(plan, environ=environ) as publisher:
            await publisher.publish(*arguments, **options)

    def sync() -> None:
        with SyncPublisher(plan, environ=environ) as publisher:
            publisher.publish(*arguments, **options)

    text = complaint(lambda: run(go()))
    assert complaint(sync) == text
    return text


def delivering(environ: dict[str, str], **options: Any) -> str:
    """What is said about the destination of an attempt."""
    deployment = Deployment.from_env(plan, environ)
    return complaint(lambda: destinations.resolve(deployment, "billing", environ, **options))


def test_with_nothing_forgotten_all_is_well(environ: dict[str, str]) -> None:
    with SyncPublisher(plan, environ=environ) as publisher:
        assert not publisher.publish(order_paid, ORDER, id="order-42-paid").duplicate
    assert destinations.resolve(Deployment.from_env(plan, environ), "billing", environ).name == "billing"


def test_no_redis_url(environ: dict[str, str]) -> None:
    del environ["HOOKLINE_REDIS_URL"]
    text = publishing(environ, order_paid, ORDER, id="42")
    assert text.startswith("no Redis configured")
    assert "export HOOKLINE_REDIS_URL=redis://127.0.0.1:6379/0" in text
    assert "hookline dev" in text


def test_no_redis_url_for_the_ledger() -> None:
    text = complaint(lambda: RedisLedger.from_env({}))
    assert text.startswith("the ledger needs a Redis server")
    assert "export HOOKLINE_REDIS_URL=redis://127.0.0.1:6379/0" in text


def test_no_grant(environ: dict[str, str]) -> None:
    del environ["HOOKLINE_GRANTS"]
    text = publishing(environ, order_paid, ORDER, id="42")
    assert text.startswith('publishing "order.paid" is not granted: add "publish:order.paid" to grants')
    assert 'export HOOKLINE_GRANTS="$HOOKLINE_GRANTS publish:order.paid"' in text


def test_the_line_for_a_grant_adds_to_those_that_are_there(environ: dict[str, str]) -> None:
    environ["HOOKLINE_GRANTS"] += " publish:order.sent"
    assert {"publish:order.paid", "publish:order.sent"} <= Deployment.from_env(plan, environ).grants


def test_no_url_of_a_webhook(environ: dict[str, str]) -> None:
    del environ["HOOKLINE_WEBHOOK_BILLING_URL"]
    text = delivering(environ)
    assert text.startswith('HOOKLINE_WEBHOOK_BILLING_URL is not set, and the webhook "billing" delivers nothing')
    assert "export HOOKLINE_WEBHOOK_BILLING_URL=https://" in text


@pytest.mark.parametrize(("profile", "option"), [("axiom", ""), ("svix", " --scheme svix")])
def test_no_key_of_a_webhook(environ: dict[str, str], profile: str, option: str) -> None:
    del environ["HOOKLINE_WEBHOOK_BILLING_KEY"]
    text = delivering(environ, profile=profile)
    assert text.startswith("HOOKLINE_WEBHOOK_BILLING_KEY is not set")
    assert f"export HOOKLINE_WEBHOOK_BILLING_KEY=$(hookline keygen{option})" in text


def test_no_leave_for_http_on_loopback(environ: dict[str, str]) -> None:
    del environ["HOOKLINE_ALLOW_LOOPBACK_HTTP"]
    text = delivering(environ)
    assert text.startswith("HOOKLINE_WEBHOOK_BILLING_URL: http is not allowed: use https")
    assert "export HOOKLINE_ALLOW_LOOPBACK_HTTP=1" in text


def test_a_name_where_http_needs_an_address(environ: dict[str, str]) -> None:
    environ["HOOKLINE_WEBHOOK_BILLING_URL"] = "http://localhost:8000/hooks/shop"
    assert "http://127.0.0.1:" in delivering(environ)


@pytest.mark.parametrize(("scheme", "option"), [("axiom", ""), ("standard-webhooks", " --scheme standard-webhooks")])
def test_no_keys_of_the_receiver(scheme: str, option: str) -> None:
    text = complaint(lambda: SigningKey.all_from_env("SHOP_KEYS", {}, scheme=scheme))
    assert text.startswith("SHOP_KEYS: the environment variable is not set")
    assert f"export SHOP_KEYS=$(hookline keygen{option})" in text


def test_empty_or_short_keys_of_the_receiver() -> None:
    for value in ("", "secret"):
        text = complaint(lambda given=value: SigningKey.all_from_env("SHOP_KEYS", {"SHOP_KEYS": given}))  # type: ignore[misc]
        assert text.startswith("SHOP_KEYS: ")
        assert "`hookline keygen`" in text


def test_no_key_that_seals_registered_destinations() -> None:
    text = complaint(lambda: Sealer.from_env("HOOKLINE_KEY_ENCRYPTION_KEY", {}))
    assert text.startswith("HOOKLINE_KEY_ENCRYPTION_KEY is not set")
    assert "export HOOKLINE_KEY_ENCRYPTION_KEY=$(hookline keygen)" in text


def test_the_line_for_the_sealing_key_makes_one() -> None:
    _, key, _ = finished("keygen")
    sealer = Sealer.from_env("K", {"K": key.strip()})
    assert sealer.open(sealer.seal(b"url", namespace="n", destination="d"), namespace="n", destination="d") == b"url"


def test_redis_does_not_run(environ: dict[str, str]) -> None:
    port = free_port()
    environ["HOOKLINE_REDIS_URL"] = f"redis://127.0.0.1:{port}/0"
    text = publishing(environ, order_paid, ORDER, id="42")
    assert text.startswith(f"Redis at 127.0.0.1:{port} cannot be reached")
    assert "redis-server --appendonly yes --appendfsync always" in text


def test_redis_may_forget(environ: dict[str, str]) -> None:
    with server(extra={"appendfsync": "everysec"}) as weak:
        environ["HOOKLINE_REDIS_URL"] = weak.url
        text = publishing(environ, order_paid, ORDER, id="42")
    assert "may lose acknowledged events: appendfsync=everysec (need always)" in text
    assert "redis-cli CONFIG SET appendfsync always" in text
    assert 'durability="asserted"' in text


def test_the_ledgers_redis_may_forget() -> None:
    async def go(url: str) -> None:
        receiver = Receiver("shop", keys=SigningKey.generate(), ledger=RedisLedger(url, namespace="shop"))
        async with receiver.lifespan():
            pass

    with server(extra={"appendfsync": "everysec"}) as weak:
        text = complaint(lambda: run(go(weak.url)))
    assert "may forget handled deliveries: appendfsync=everysec (need always)" in text
    assert "redis-cli CONFIG SET appendfsync always" in text


@pytest.mark.parametrize(
    ("module", "name", "package", "extra"),
    [
        ("hookline_sender", "Publisher", "httpx", "sender"),
        ("hookline_sender.egress", "HttpxTransport", "httpcore", "sender"),
        ("hookline_sender.egress", "FastTransport", "httptools", "fast"),
        ("hookline_receiver", "Receiver", "starlette", "receiver"),
    ],
)
def test_an_extra_is_not_installed(module: str, name: str, package: str, extra: str) -> None:
    hidden = f"import sys; sys.modules.update({{{package!r}: None, 'redis': None}})\n"
    code = f"{hidden}try:\n    from {module} import {name}\nexcept ImportError as error:\n    print(error)"
    with python("-c", code) as process:
        text, _ = process.communicate(timeout=HANG)
    assert text.startswith(f"{name} needs")
    assert f"pip install 'hookline[{extra}]'" in text


def test_no_plan_is_named(folder: Path) -> None:
    text = complaint(lambda: find("", folder, {}))
    assert text.startswith("which plan?")
    assert re.findall(r"hookline dev \S+:plan|export HOOKLINE_PLAN=\S+:plan|plan = \"\S+:plan\"", text) == [
        "hookline dev shop:plan",
        "export HOOKLINE_PLAN=shop:plan",
        'plan = "shop:plan"',
    ]


@pytest.mark.parametrize("wrong", ["shop.py:plan", "shop", "shp:plan"])
def test_the_plans_name_is_wrong(folder: Path, wrong: str) -> None:
    assert "shop:plan" in complaint(lambda: load(Target(wrong, folder)))


def test_the_publisher_is_not_open(environ: dict[str, str]) -> None:
    publisher, sync = Publisher(plan, environ=environ), SyncPublisher(plan, environ=environ)
    text = complaint(lambda: run(publisher.publish(order_paid, ORDER, id="42")))
    assert text.startswith("the publisher is not open")
    assert "async with publisher" in text
    assert "FastAPI(lifespan=publisher.lifespan)" in text
    assert "publisher.open()" in complaint(lambda: sync.publish(order_paid, ORDER, id="42"))


@pytest.mark.parametrize("payload", [{"order_id": "42"}, "42", b"42"])
def test_the_payload_is_of_another_type(environ: dict[str, str], payload: object) -> None:
    text = publishing(environ, PAID, payload, id="42")
    assert text.startswith(f'"order.paid" takes OrderPaid, not {type(payload).__name__}')
    assert "publish OrderPaid(…)" in text


@pytest.mark.parametrize("event", ["order.paid", OrderPaid])
def test_the_event_is_named_instead_of_given(environ: dict[str, str], event: Any) -> None:
    assert "takes what plan.event(…) returned" in publishing(environ, event, ORDER, id="42")
    assert "takes what plan.event(…) returned" in complaint(lambda: Plan("shop").webhook("billing", event))


def test_the_payload_is_missing(environ: dict[str, str]) -> None:
    assert "needs either a payload, OrderPaid(…)" in publishing(environ, PAID, id="42")


@pytest.mark.parametrize("options", [{}, {"id": ""}, {"id": None}, {"id": 42}])
def test_the_id_is_missing(environ: dict[str, str], options: dict[str, object]) -> None:
    text = publishing(environ, PAID, ORDER, **options)
    assert text.startswith("id is a text of 1 to 256 characters")
    assert 'id="order-42-paid"' in text


def test_no_webhook_carries_the_event(environ: dict[str, str]) -> None:
    text = publishing(environ, order_lost, ORDER, id="42")
    assert text.startswith('no webhook of plan "shop" carries "order.lost"')
    assert 'plan.webhook("billing", order_lost)' in text


def test_a_worker_says_at_once_what_its_webhooks_miss(folder: Path, environ: dict[str, str]) -> None:
    del environ["HOOKLINE_WEBHOOK_BILLING_KEY"]
    with hookline("worker", "shop:plan", environ=environ, cwd=folder) as worker:
        assert "export HOOKLINE_WEBHOOK_BILLING_KEY=$(hookline keygen)" in said(worker, "is not set")
