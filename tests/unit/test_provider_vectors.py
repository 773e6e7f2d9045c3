"""Signatures of other senders, published by them or derived from what they published, given to both entrances."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hookline_receiver import MemoryLedger, Receiver, Refused, SigningKey, verify
from tests.support import run
from tests.support_receiver import call

# The first word of our reason; a case may say more or less about the same fault.
REASONS = {
    "missing_header": "missing",
    "malformed_signature": "malformed_signature",
    "malformed_timestamp": "malformed_timestamp",
    "no_matching_signature": "no_matching_signature",
    "too_old": "stale",
}
# Its signature is a placeholder, which is judged before the time is.
PLACEHOLDERS = {"openai-too-old": "malformed_signature"}


@dataclass(frozen=True)
class Case:
    """One case as bytes. `reason` is None when the request is authentic."""

    id: str
    scheme: str
    headers: list[tuple[bytes, bytes]]
    body: bytes
    key: SigningKey
    now_ms: int
    tolerance: float
    reason: str | None


def case_of(vector: dict[str, Any]) -> Case:
    repeat = vector.get("body_repeat")
    whole = base64.b64decode(vector["body_b64"]) if "body_b64" in vector else vector.get("body", "").encode()
    reason = vector["reason"]
    return Case(
        id=vector["id"],
        scheme=vector["scheme"],
        headers=[(name.encode("latin-1"), value.encode("latin-1")) for name, value in vector["headers"].items()],
        body=repeat["char"].encode() * repeat["count"] if repeat else whole,
        key=SigningKey.parse(vector.get("secret") or vector["public_key"], scheme=vector["scheme"]),
        now_ms=vector["now"] * 1000,
        tolerance=vector["tolerance_s"],
        reason=None if reason is None else PLACEHOLDERS.get(vector["id"], REASONS[reason]),
    )


DATA = Path(__file__).parents[1] / "data/vectors/providers.json"
CASES = [case_of(vector) for vector in json.loads(DATA.read_text("utf-8"))["vectors"]]
each = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)


def as_svix(case: Case) -> list[tuple[bytes, bytes]]:
    return [(name.replace(b"webhook-", b"svix-"), value) for name, value in case.headers]


def reason_of(case: Case, scheme: str, headers: list[tuple[bytes, bytes]]) -> str | None:
    try:
        found = verify(headers, case.body, keys=case.key, now_ms=case.now_ms, tolerance=case.tolerance, scheme=scheme)
    except Refused as refused:
        return refused.reason
    assert found.body == case.body
    assert found.timestamp_ms is not None
    return None


def test_there_are_26_cases() -> None:
    assert len({case.id for case in CASES}) == 26


@each
def test_verification_gives_the_verdict_of_the_case(case: Case) -> None:
    assert (reason_of(case, case.scheme, case.headers) or "").startswith(case.reason or "")
    assert (reason_of(case, case.scheme, case.headers) is None) is (case.reason is None)


@each
def test_svix_headers_give_the_same_verdict(case: Case) -> None:
    assert reason_of(case, "svix", as_svix(case)) == reason_of(case, case.scheme, case.headers)


@each
def test_a_receiver_answers_the_verdict_of_the_case(case: Case) -> None:
    receiver = Receiver(
        "vectors",
        keys=case.key,
        ledger=MemoryLedger(allow_volatile=True),
        scheme=case.scheme,
        clock=lambda: case.now_ms,
        tolerance=case.tolerance,
        type_from=lambda _: "unheard.of",  # authentic and without a handler: 204, whatever the body is
    )
    chunks = [min(65_536, len(case.body) - start) for start in range(0, len(case.body), 65_536)]
    reply = run(call(receiver, case.headers, case.body, chunks=chunks))
    assert reply.status == {None: 204, "stale": 503}.get(case.reason, 401)
