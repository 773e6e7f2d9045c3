"""Whatever goes wrong, neither a key nor a payload is shown anywhere."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from hookline_receiver import SigningKey
from tests.support import run
from tests.support_receiver import NOW_MS, Ledger, call, handled_by, nothing, signed

MARKED = "sekret-marker-0123456789abcdef-sekret"
PAYLOAD = b'{"type":"order.paid","data":{"id":["marker-payload"],"marker-field":1}}'


def failing(event: object) -> None:
    raise LookupError


SITUATIONS: dict[str, Any] = {
    "forged": (handled_by(nothing), signed(PAYLOAD, key=SigningKey.parse(MARKED))),
    "no-model": (handled_by(nothing, keys=SigningKey.parse(MARKED)), signed(PAYLOAD, key=SigningKey.parse(MARKED))),
    "no-json": (handled_by(nothing), signed(PAYLOAD[:-1])),
    "stale": (handled_by(nothing), signed(PAYLOAD, now_ms=NOW_MS + 3_600_000)),
    "too-large": (handled_by(nothing, max_body_bytes=5), signed(PAYLOAD)),
    "ledger-down": (handled_by(nothing, ledger=Ledger("claim", "find")), signed(PAYLOAD)),
    "failed": (handled_by(failing), signed(b'{"type":"order.paid","data":{"id":"marker-payload"}}')),
    "unrecorded": (
        handled_by(nothing, ledger=Ledger("complete"), lease=0.05),
        signed(b'{"type":"order.paid","data":{"id":"marker-payload"}}'),
    ),
    "malformed": (handled_by(nothing), ([*signed()[0][:-2], (b"x-axiom-signature", b"marker-payload")], b"")),
    "bad-id": (handled_by(nothing), ([(b"x-axiom-delivery", b"marker.payload"), *signed()[0][2:]], b"")),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_no_failure_shows_a_key_or_a_payload(situation: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    app, (headers, body) = SITUATIONS[situation]
    reply = run(call(app, headers, body))
    shown = f"{caplog.text} {reply} {app!r} {vars(app)!r} {app.counters!r}"
    assert reply.status >= 400
    assert "marker" not in shown
    assert MARKED.encode().hex() not in shown
