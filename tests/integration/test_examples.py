"""Each example runs, against real servers."""

from __future__ import annotations

import importlib.util
import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine

from hookline_receiver.testing import AsyncDeliveryClient, DeliveryClient, sign_request
from hookline_sender import SigningKey, Worker
from tests.support import HANG, http_get, http_post, http_request, python, run, serve

if TYPE_CHECKING:
    from types import ModuleType

EXAMPLES = Path(__file__).parents[2] / "examples"
KEY = SigningKey.generate()


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch, redis_url: str, namespace: str) -> pytest.MonkeyPatch:
    """The variables that the examples name."""
    monkeypatch.setenv("HOOKLINE_REDIS_URL", redis_url)
    monkeypatch.setenv("HOOKLINE_NAMESPACE", namespace)
    monkeypatch.setenv("HOOKLINE_GRANTS", "publish:order.paid")
    monkeypatch.setenv("HOOKLINE_ALLOW_LOOPBACK_HTTP", "1")
    monkeypatch.setenv("HOOKLINE_WEBHOOK_BILLING_KEY", KEY.reveal())
    monkeypatch.setenv("SHOP_KEYS", KEY.reveal())
    return monkeypatch


def load(name: str) -> ModuleType:
    """An example as a module of its own, imported anew."""
    spec = importlib.util.spec_from_file_location(f"example_{name}_{os.urandom(4).hex()}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_page(name: str) -> dict[str, Any]:
    """What the Python blocks of a page define."""
    page, names = (EXAMPLES.parent / "docs" / name).read_text("utf-8"), dict[str, Any]()
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        # Not with this module's lazy annotations: a reader's file has none.
        exec(compile(block, name, "exec", dont_inherit=True), names)  # noqa: S102 - our own page
    return names


@pytest.mark.parametrize("app", ["app", "fastapi_app"])
def test_the_publisher_service_and_the_receiver_app_work_together(environ: pytest.MonkeyPatch, app: str) -> None:
    publisher, receiver = load("publisher_service"), load("receiver_app")
    with serve(getattr(receiver, app)) as receiving, serve(publisher.app) as publishing:
        environ.setenv("HOOKLINE_WEBHOOK_BILLING_URL", f"{receiving}/hooks/shop")
        first, second = (http_post(f"{publishing}/orders/o-1/payment", json={"amount_cents": 1999}) for _ in range(2))
        attempts = run(Worker(publisher.plan).run_once())
    assert (first.json()["duplicate"], second.json()["duplicate"]) == (False, True)
    assert first.json()["deliveries"] == second.json()["deliveries"]
    assert (attempts, receiver.invoices) == (1, {"o-1": 1999})


def test_the_flask_publisher_publishes_a_payment_once(environ: pytest.MonkeyPatch) -> None:
    publisher, receiver = load("flask_publisher"), load("receiver_app")
    with serve(receiver.app) as receiving:
        environ.setenv("HOOKLINE_WEBHOOK_BILLING_URL", f"{receiving}/hooks/shop")
        with closing(publisher.publisher):
            client = publisher.create_app().test_client()
            first, second = (client.post("/orders/o-4/payment", json={"amount_cents": 1999}) for _ in range(2))
        attempts = run(Worker(publisher.plan).run_once())
    assert (first.status_code, first.json["duplicate"], second.json["duplicate"]) == (202, False, True)
    assert (attempts, receiver.invoices) == (1, {"o-4": 1999})


def test_a_users_own_tests_run_as_they_stand() -> None:
    with python("-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLES / "test_my_webhook.py")) as tests:
        said, _ = tests.communicate(timeout=HANG)
    assert tests.returncode == 0, said
    assert "5 passed" in said


@pytest.mark.usefixtures("environ")
@pytest.mark.parametrize("app", ["app", "fastapi_app"])
def test_the_documented_path_never_answers_a_redirect(app: str) -> None:
    body: dict[str, Any] = {"order_id": "o-2", "amount_cents": 5}
    headers, content = sign_request("order.paid", body, key=KEY)
    with serve(getattr(load("receiver_app"), app)) as url:
        statuses = {
            method: http_request(method, f"{url}/hooks/shop", headers=headers, content=content).status_code
            for method in ("POST", "GET", "PUT")
        }
    assert statuses == {"POST": 204, "GET": 405, "PUT": 405}


@pytest.mark.usefixtures("environ")
def test_the_middleware_app_books_a_payment_once_and_nothing_unsigned() -> None:
    body: dict[str, Any] = {"order_id": "o-3", "amount_cents": 7}
    headers, content = sign_request("order.paid", body, key=KEY)
    example = load("middleware_app")
    with serve(example.app) as url:
        first, again = (http_post(f"{url}/hooks/shop", headers=headers, content=content) for _ in range(2))
        forged = http_post(f"{url}/hooks/shop", content=content)
    assert (first.json()["booked"], again.status_code, again.headers["x-axiom-replayed"]) == ("o-3", 200, "true")
    assert (forged.status_code, example.invoices) == (401, {"o-3": 7})


def test_the_exactly_once_service_books_copies_and_retries_of_a_payment_once(
    environ: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environ.chdir(tmp_path)
    environ.delenv("ORDERS_DATABASE", raising=False)
    body: dict[str, Any] = {"order_id": "o-5", "amount_cents": 1999}
    headers, content = sign_request("order.paid", body, key=KEY)
    with serve(load("exactly_once_orders").app) as url, ThreadPoolExecutor(8) as senders:
        copies = senders.map(lambda _: http_post(f"{url}/hooks/shop", headers=headers, content=content), range(8))
        statuses = {copy.status_code for copy in copies}
        books = http_get(f"{url}/books").json()
    assert statuses <= {204, 503}
    assert books == {"o-5": 1999}


def test_the_code_of_the_exactly_once_page_runs_as_it_stands(environ: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environ.chdir(tmp_path)
    names = run_page("exactly-once.md")
    names["metadata"].create_all(create_engine("sqlite:///orders.db"))
    body = {"order_id": "o-6", "amount_cents": 7}
    with DeliveryClient(names["app"], "/hooks/shop", receiver=names["receiver"]) as client:
        first, again = (client.deliver("order.paid", body, id="order-6-paid") for _ in range(2))
    headers, content = sign_request("order.paid", body, key=KEY)
    with serve(names["orders"]) as url:
        once = http_post(f"{url}/hooks/shop", headers=headers, content=content)
    assert (first.status, again.status, again.replayed, once.status_code) == (204, 204, True, 204)


@pytest.mark.usefixtures("environ")
def test_the_code_of_the_accepting_page_runs_as_it_stands() -> None:
    async def go() -> tuple[int, int]:
        async with AsyncDeliveryClient(names["app"], "/", receiver=names["receiver"]) as client:
            reply = await client.deliver("order.paid", {"order_id": "o-8", "amount_cents": 8}, id="order-8-paid")
            handled = await names["processor"].run_once()
            await names["look_after"]()
        return reply.status, handled

    names = run_page("accepting.md")
    assert run(go()) == (202, 1)
    assert names["invoices"] == {"o-8": 8}


@pytest.mark.usefixtures("environ")
def test_the_code_of_the_receiving_page_runs_as_it_stands() -> None:
    names = run_page("receiving.md")
    names["test_a_payment_is_booked_once"]()
    with DeliveryClient(names["orders"], "/hooks/shop", receiver=names["receiver"]) as client:
        assert client.post([], b"").status == 401


ZOO = """
accepts completed answered 204, tried once
has no such path failed http_4xx, tried once
wants nothing any more failed gone, tried once
knows another body failed receiver_conflict, tried once
redirects failed redirect, tried once
asks for patience failed http_429, tried 2 times
fails failed http_5xx, tried 2 times
never answers failed timeout_total, tried 2 times
answers a byte at a time failed timeout_total, tried 2 times
has an endless body completed answered 200, tried once
resets failed reset, tried 2 times
closes failed reset, tried 2 times
stops in the head failed reset, tried 2 times
stops in the body failed reset, tried 2 times
has a huge head failed response_too_large, tried 2 times
floods early hints failed protocol_error, tried 2 times
switches protocols failed protocol_error, tried 2 times
frames twice failed protocol_error, tried 2 times
talks smtp failed protocol_error, tried 2 times
has a certificate of its own failed tls_failed, tried 2 times
has no name failed dns_failed, tried 2 times
is inside our network failed unsafe_address, tried 2 times
is the cloud's metadata failed unsafe_address, tried 2 times
"""


@pytest.mark.parametrize("transport", ["httpx", "fast"])
def test_a_zoo_of_endpoints_ends_alike_over_both_transports(transport: str) -> None:
    def told() -> tuple[int, str]:
        with python(str(EXAMPLES / "hostile_endpoints.py"), transport) as zoo:
            said, _ = zoo.communicate(timeout=HANG)
        return zoo.returncode, re.sub(" +", " ", said.replace("tried", ", tried")).replace(" ,", ",")

    # Each attempt has a second, and the machine may stand still for longer.
    assert (0, ZOO[1:]) in (told() for _ in range(3))
