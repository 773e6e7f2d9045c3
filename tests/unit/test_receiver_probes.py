"""What a receiver answers by itself is told from deliveries by what is signed, and nothing in it is believed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline_shared.probes import CHALLENGE_HEADER, ID_PREFIX, PING, VALIDATION
from tests.support import run
from tests.support_receiver import call, handled_by, nothing, receiver, signed

PROBE = ID_PREFIX + "1"


def body_of(event: str, **data: object) -> bytes:
    return json.dumps({"type": event, "data": data}).encode()


def test_a_validation_is_answered_with_its_challenge() -> None:
    reply = run(call(receiver(), *signed(body_of(VALIDATION.name, challenge="c" * 32), delivery_id=PROBE)))
    assert (reply.status, reply.headers[CHALLENGE_HEADER]) == (204, b"c" * 32)


@pytest.mark.parametrize("challenge", ["short", "c" * 129, "c" * 16 + "\r\nx-evil: 1", "ä" * 20, 7, None])
def test_a_challenge_that_could_be_anything_else_is_not_repeated(challenge: object) -> None:
    reply = run(call(receiver(), *signed(body_of(VALIDATION.name, challenge=challenge), delivery_id=PROBE)))
    assert (reply.status, CHALLENGE_HEADER in reply.headers) == (422, False)


def test_an_event_of_that_name_with_a_deliverys_id_is_a_delivery() -> None:
    app = receiver()
    app.on(PING)(nothing)
    reply = run(call(app, *signed(body_of(PING.name), delivery_id="d" * 38)))
    assert (reply.status, app.counters["handled"], app.counters["ping"]) == (204, 1, 0)


def test_a_probe_reaches_neither_handler_nor_ledger_and_is_counted() -> None:
    app = handled_by(nothing)
    for _ in range(2):
        assert run(call(app, *signed(body_of(PING.name), delivery_id=PROBE))).status == 204
    assert app.counters == {"ping": 2}


def test_a_probe_without_the_right_signature_is_refused() -> None:
    headers, body = signed(body_of(PING.name), delivery_id=PROBE)
    assert run(call(receiver(), headers, body + b" ")).status == 401


@given(st.binary(max_size=200))
def test_any_signed_bytes_under_a_probes_id_are_answered(body: bytes) -> None:
    assert run(call(receiver(), *signed(body, delivery_id=PROBE))).status == 422
