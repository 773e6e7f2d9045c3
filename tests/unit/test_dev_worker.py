from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from hookline_sender.cli.dev_worker import Telling
from hookline_sender.egress.transport import TransportFailed, WireResponse
from tests.support import run


@dataclass
class Answering:
    """A transport with one answer."""

    status: int
    closed: bool = False

    async def post(self, url: str, headers: Any, body: bytes, **options: Any) -> WireResponse:
        if not self.status:
            raise TransportFailed("connect", "the connection was refused")
        return WireResponse(self.status)

    async def aclose(self) -> None:
        self.closed = True


def told(caplog: pytest.LogCaptureFixture, status: int, destination: str = "crm") -> str:
    telling = Telling(Answering(status), frozenset({"billing"}))
    answer = run(telling.post("https://x.invalid", [], b"secret", deadline=1.0, destination=destination))
    assert answer.status == status
    return caplog.text


def test_a_delivery_is_told_unless_its_receiver_does(caplog: pytest.LogCaptureFixture) -> None:
    assert told(caplog, 204, "billing") == ""
    assert "crm answered 204" in told(caplog, 204)


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (307, "use Route and not Mount"),
        (401, "another key"),
        (404, "the URL the one of the Route?"),
        (429, "will be tried again"),
        (503, "will be tried again"),
        (410, "a dead letter now"),
    ],
)
def test_a_refusal_comes_with_its_likely_cause(caplog: pytest.LogCaptureFixture, status: int, advice: str) -> None:
    text = told(caplog, status)
    assert f"crm answered {status}: " in text
    assert advice in text
    assert "secret" not in text


def test_a_failure_is_told_and_stays_one(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(TransportFailed):
        told(caplog, 0)
    assert "crm: no answer (the connection was refused), will be tried again" in caplog.text


def test_closing_closes_what_it_tells_about() -> None:
    inner = Answering(204)
    run(Telling(inner, frozenset()).aclose())
    assert inner.closed
