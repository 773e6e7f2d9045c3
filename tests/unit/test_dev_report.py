from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from hookline_sender.cli.dev_report import Report

DELIVERY = {"webhook": "billing", "status": 204, "verified": True, "repeat": False, "type": "order.paid", "id": "dlv_1"}


def shown(**told: Any) -> str:
    """What a terminal without colours shows of one delivery."""
    out = io.StringIO()
    line = {**DELIVERY, "attempt": 2, "size_bytes": 10, "body": "{}", **told}
    Report(Console(file=out, width=80, highlight=False)).delivery(json.dumps(line))
    return out.getvalue()


def test_of_an_event_its_data_are_shown() -> None:
    body = json.dumps({"event_id": "evt_1", "type": "order.paid", "data": {"order_id": "42"}})
    text = shown(body=body)
    assert text.startswith("✓ billing order.paid verified, answered 204, attempt 2  dlv_1\n")
    assert ('"order_id": "42"' in text, "evt_1" in text) == (True, False)


@pytest.mark.parametrize("body", ['{"data": 1}', '{"type": "other", "data": 1}', "[1]", "1", "null"])
def test_what_is_no_event_is_shown_whole(body: str) -> None:
    assert json.loads(shown(body=body).partition("\n")[2]) == json.loads(body)


def test_what_is_too_long_or_no_json_is_shown_for_what_it_is() -> None:
    assert "(4096 bytes)" in shown(body=None, size_bytes=4096)
    assert r"'%PDF\x00'" in shown(body="%PDF\x00")


@pytest.mark.parametrize("body", ['{"data": "\\u001b]0;title"}', "\x1b]0;title", '"\\u202e"'])
def test_no_payload_speaks_to_the_terminal(body: str) -> None:
    assert shown(body=body, type="a\x1bb", id="\x9b2J").replace("\n", "").isprintable()


def test_a_refusal_and_a_repeat_are_told_apart() -> None:
    assert shown(verified=False, status=401) == "✗ billing not verified: answered 401\n"
    assert shown(verified=False, repeat=True) == "↺ billing a repeat: answered 204 from the ledger\n"
