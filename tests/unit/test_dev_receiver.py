"""The receiver of `hookline dev`, without a server: it checks as a user's own would, and tells what came."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from hookline_receiver import MemoryLedger, SigningKey
from hookline_receiver.dev import SHORT_BYTES, VARIABLE, create_app
from hookline_receiver.inprocess import InProcess
from hookline_receiver.testing import sign_request
from tests.support import run

KEY = SigningKey.generate()
SVIX = SigningKey.generate_ed25519()
ENVIRON = {
    VARIABLE: json.dumps(
        [
            {"name": "billing", "scheme": "axiom", "keys": "BILLING_KEY"},
            {"name": "crm", "scheme": "svix", "keys": "CRM_KEY"},
        ]
    ),
    "BILLING_KEY": KEY.reveal(),
    "CRM_KEY": SVIX.reveal(),
}


def told(path: str, *requests: tuple[list[tuple[bytes, bytes]], bytes]) -> list[dict[str, Any]]:
    """What the receiver says about requests to `path`."""
    out = io.StringIO()
    app = create_app(ENVIRON, ledger=MemoryLedger(allow_volatile=True), out=out)

    async def go() -> None:
        process = InProcess(app)
        async with process.running():
            for headers, body in requests:
                await process.post(path, headers, body)

    run(go())
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_an_authentic_delivery_is_told_with_all_that_identifies_it() -> None:
    (line,) = told("/hooks/billing", sign_request("order.paid", {"order_id": "42"}, key=KEY, delivery_id="dlv_1"))
    assert (line["webhook"], line["type"], line["id"], line["attempt"]) == ("billing", "order.paid", "dlv_1", 1)
    assert (line["status"], line["verified"], line["repeat"]) == (204, True, False)
    assert json.loads(line["body"])["data"] == {"order_id": "42"}


def test_a_repeat_is_told_as_one() -> None:
    request = sign_request("order.paid", {}, key=KEY)
    assert [line["repeat"] for line in told("/hooks/billing", request, request)] == [False, True]


def test_a_forged_delivery_is_refused_and_told_without_its_content() -> None:
    (line,) = told("/hooks/billing", sign_request("order.paid", {"order_id": "42"}, key=SigningKey.generate()))
    assert line == {"webhook": "billing", "status": 401, "verified": False, "repeat": False}


def test_each_webhook_has_its_own_scheme_and_keys() -> None:
    (line,) = told("/hooks/crm", sign_request("order.paid", {}, key=SVIX, scheme="svix"))
    assert (line["webhook"], line["verified"]) == ("crm", True)


@pytest.mark.parametrize("body", [b"\xff\x00", b"", b"plain"])
def test_bytes_that_are_no_event_are_delivered_too(body: bytes) -> None:
    (line,) = told("/hooks/billing", sign_request("order.scan", body, key=KEY))
    assert (line["verified"], line["size_bytes"]) == (True, len(body))


def test_only_a_short_body_is_told() -> None:
    (line,) = told("/hooks/billing", sign_request("order.scan", b"x" * (SHORT_BYTES + 1), key=KEY))
    assert (line["body"], line["size_bytes"]) == (None, SHORT_BYTES + 1)
