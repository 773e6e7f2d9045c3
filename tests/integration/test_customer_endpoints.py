"""The example whose customers register endpoints, driven over HTTP as its users would."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hookline_sender import SigningKey, Worker
from tests.support import http_request, run, serve
from tests.support_customers import KEK, accepted
from tests.support_sender import Endpoint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

EXAMPLE = Path(__file__).parents[2] / "examples" / "customer_endpoints.py"


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, redis_url: str, namespace: str) -> Iterator[tuple[ModuleType, str]]:
    """The example and the URL it is served at."""
    monkeypatch.setenv("HOOKLINE_REDIS_URL", redis_url)
    monkeypatch.setenv("HOOKLINE_NAMESPACE", namespace)
    monkeypatch.setenv("HOOKLINE_GRANTS", "publish:order.* register:webhook:customers")
    monkeypatch.setenv("HOOKLINE_ALLOW_LOOPBACK_HTTP", "1")
    monkeypatch.setenv("HOOKLINE_KEY_ENCRYPTION_KEY", KEK)
    spec = importlib.util.spec_from_file_location(f"customer_endpoints_{os.urandom(4).hex()}", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    with serve(example.app) as url:
        yield example, url


class Browser:
    """One customer's requests."""

    def __init__(self, url: str, name: str) -> None:
        self._url, self._name = url, name

    def __call__(self, method: str, path: str, expected: int, **options: Any) -> Any:
        headers = {"x-customer": self._name}
        response = http_request(method, self._url + path, headers=headers, **options)
        assert response.status_code == expected, response.text
        return response.json() if response.content else None

    def pay(self, order: str) -> list[str]:
        endpoints: list[str] = self("POST", f"/orders/{order}/payment", 202, params={"amount_cents": 100})["endpoints"]
        return endpoints


def test_customers_register_endpoints_and_get_the_events_of_their_own_orders(service: tuple[ModuleType, str]) -> None:
    example, url = service
    ann, bob = Browser(url, "ann"), Browser(url, "bob")

    async def go() -> None:
        async with Endpoint() as hers, Endpoint() as his:
            made = ann("POST", "/endpoints", 201, json={"url": hers.url, "events": ["order.*"]})
            bob("POST", "/endpoints", 201, json={"url": his.url})
            assert ann.pay("o-1") == [made["id"]]
            assert await Worker(example.plan).run_once() == 1
        assert (len(hers.requests), len(his.requests)) == (1, 0)
        assert accepted(hers.requests[0], [SigningKey.parse(made["signing_key"])])

    run(go())


def test_a_customer_lists_changes_pauses_and_removes_an_endpoint(service: tuple[ModuleType, str]) -> None:
    ann = Browser(service[1], "ann")
    made = ann("POST", "/endpoints", 201, json={"url": "https://ann.example/a"})
    path = f"/endpoints/{made['id']}"
    changed = ann("PUT", path, 200, json={"url": "https://ann.example/b", "events": ["order.refunded"]})
    assert ann("GET", "/endpoints", 200) == [changed]
    assert ann.pay("o-1") == []
    ann("PUT", path + "/pause", 204)
    assert ann("GET", "/endpoints", 200)[0]["paused"]
    ann("DELETE", path + "/pause", 204)
    ann("DELETE", path, 204)
    assert ann("GET", "/endpoints", 200) == []
    ann("DELETE", path, 404)


@pytest.mark.usefixtures("service")
def test_the_code_of_the_page_about_destinations_runs_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    page = (EXAMPLE.parents[1] / "docs" / "destinations.md").read_text("utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    exec(compile(code, "destinations.md", "exec", dont_inherit=True), {})  # noqa: S102 - our own page
    assert SigningKey.parse(capsys.readouterr().out).size_bytes == 32


def test_a_rotated_key_and_the_one_before_it_both_verify(service: tuple[ModuleType, str]) -> None:
    example, url = service
    ann = Browser(url, "ann")

    async def go() -> None:
        async with Endpoint() as hers:
            made = ann("POST", "/endpoints", 201, json={"url": hers.url})
            new = ann("POST", f"/endpoints/{made['id']}/key", 200)
            ann.pay("o-1")
            assert await Worker(example.plan).run_once() == 1
        for shown in (made, new):
            assert accepted(hers.requests[0], [SigningKey.parse(shown["signing_key"])])

    run(go())


def test_nobody_sees_or_touches_another_customers_endpoint(service: tuple[ModuleType, str]) -> None:
    ann, bob = Browser(service[1], "ann"), Browser(service[1], "bob")
    path = f"/endpoints/{ann('POST', '/endpoints', 201, json={'url': 'https://ann.example/'})['id']}"
    assert bob("GET", "/endpoints", 200) == []
    bob("POST", path + "/key", 404)
    bob("DELETE", path, 404)
    bob("PUT", path, 404, json={"url": "https://bob.example/"})
    assert len(ann("GET", "/endpoints", 200)) == 1


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"url": "http://ann.example/hush"}, "use https"),
        ({"url": "https://ann.example/hush", "events": ["order.payed"]}, "carries no event"),
        ({"url": "https://ann.example/hush", "events": []}, "1 to 64"),
    ],
)
def test_what_cannot_be_registered_is_explained_to_the_customer(
    service: tuple[ModuleType, str], wish: dict[str, Any], said: str
) -> None:
    detail = Browser(service[1], "ann")("POST", "/endpoints", 422, json=wish)["detail"]
    assert said in detail
    assert "hush" not in detail
