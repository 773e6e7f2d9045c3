"""Every conformance case of the v1 scheme, given to `verify` and to a receiver as an ASGI application."""

from __future__ import annotations

import pytest

from hookline_receiver import Refused, verify
from tests.support import run
from tests.support_receiver import VECTORS, Vector, call, receiver_of

each = pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.id)


def verdict(vector: Vector) -> str:
    try:
        delivery = verify(
            vector.headers, vector.body, keys=vector.keys, now_ms=vector.now_ms, tolerance=vector.tolerance
        )
    except Refused as refused:
        return "stale" if refused.reason == "stale" else "invalid"
    assert delivery.body == vector.body
    return "valid"


def test_there_are_43_cases() -> None:
    assert len({vector.id for vector in VECTORS}) == 43


@each
def test_verification_gives_the_verdict_of_the_case(vector: Vector) -> None:
    if vector.verdict != "n/a":  # those are about the request, not its signature
        assert verdict(vector) == vector.verdict.removesuffix("-signature")


@each
def test_a_receiver_answers_the_status_of_the_case(vector: Vector) -> None:
    answered = call(receiver_of(vector), vector.headers, vector.body, method=vector.method, chunks=vector.chunks)
    assert run(answered).status == vector.status
