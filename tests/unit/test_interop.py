"""What we send, the published libraries verify; what they sign, we verify."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any, Protocol

import pytest
import standardwebhooks
import svix.webhooks
from hypothesis import given
from hypothesis import strategies as st

from hookline_receiver import Refused, SigningKey, verify
from hookline_receiver.testing import sign_request
from hookline_sender.engine.layout import lane_of, pid_of

KEY, OLD, FOREIGN = SigningKey.generate(), SigningKey.generate(), SigningKey.generate()
BODIES = [
    b'{"test": 2432232314}',
    '{"t":"🤨 ñ \\u2028","ключ":"значение"}'.encode(),
    b"{}",
    b'{"a":"' + b"x" * 65_000 + b'"}',
]


class Published(Protocol):
    """What the two libraries have in common."""

    def verify(self, data: bytes | str, headers: dict[str, str]) -> Any: ...
    def sign(self, msg_id: str, timestamp: datetime, data: str) -> str: ...


def library(scheme: str, key: SigningKey = KEY) -> Published:
    secret = key.reveal(scheme=scheme)
    return standardwebhooks.Webhook(secret) if scheme == "standard-webhooks" else svix.webhooks.Webhook(secret)


REFUSAL = (standardwebhooks.WebhookVerificationError, svix.webhooks.WebhookVerificationError)
schemes = pytest.mark.parametrize("scheme", ["standard-webhooks", "svix"])


def ours(scheme: str, body: bytes = BODIES[0], **options: Any) -> dict[str, str]:
    headers, _ = sign_request("order.paid", body, **{"key": KEY, "traceparent": None, **options}, scheme=scheme)
    return {name.decode(): value.decode() for name, value in headers}


def theirs(scheme: str, body: bytes = BODIES[0], *, key: SigningKey = KEY, at: int | None = None) -> dict[str, str]:
    moment = int(time.time()) if at is None else at
    signature = library(scheme, key).sign("msg_1", datetime.fromtimestamp(moment, UTC), body.decode())
    prefix = "webhook" if scheme == "standard-webhooks" else "svix"
    return {f"{prefix}-id": "msg_1", f"{prefix}-timestamp": str(moment), f"{prefix}-signature": signature}


def signature_name(headers: dict[str, str]) -> str:
    return next(name for name in headers if name.endswith("-signature"))


def they_take(their_scheme: str, body: bytes, headers: dict[str, str], key: SigningKey = KEY) -> bool:
    try:
        library(their_scheme, key).verify(body, headers)
    except REFUSAL:
        return False
    return True


@schemes
@pytest.mark.parametrize("body", BODIES, ids=["plain", "unicode", "empty", "large"])
def test_what_we_send_they_verify(scheme: str, body: bytes) -> None:
    traceparent = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    assert they_take(scheme, body, ours(scheme, body, attempt=7, traceparent=traceparent))


@schemes
@pytest.mark.parametrize("body", BODIES, ids=["plain", "unicode", "empty", "large"])
def test_what_they_sign_we_verify(scheme: str, body: bytes) -> None:
    found = verify(theirs(scheme, body), body, keys=KEY, scheme=scheme)
    assert (found.id, found.body, found.attempt) == ("msg_1", body, None)


@schemes
def test_an_id_of_ours_is_one_of_theirs(scheme: str) -> None:
    delivery_id = pid_of("shop", "webhook", "order.paid", "", "order-1") + lane_of("billing", "billing")
    headers = ours(scheme, delivery_id=delivery_id)
    library(scheme).verify(BODIES[0], headers)
    assert delivery_id in headers.values()


@schemes
@pytest.mark.parametrize("known", [KEY, OLD])
def test_a_rotation_list_of_ours_verifies_with_either_key(scheme: str, known: SigningKey) -> None:
    ed25519 = SigningKey.generate_ed25519()
    assert they_take(scheme, BODIES[0], ours(scheme, key=[FOREIGN, ed25519, KEY, OLD]), known)


@schemes
@pytest.mark.parametrize("known", [KEY, OLD, [FOREIGN, OLD]])
def test_a_rotation_list_of_theirs_verifies_with_either_key(scheme: str, known: SigningKey | list[SigningKey]) -> None:
    headers, old = theirs(scheme, at=1_700_000_000), theirs(scheme, key=OLD, at=1_700_000_000)
    headers[signature_name(headers)] += f" {old[signature_name(old)]}"
    assert verify(headers, BODIES[0], keys=known, scheme=scheme, now_ms=1_700_000_000_000).id == "msg_1"


@schemes
def test_nobody_verifies_what_another_key_signed(scheme: str) -> None:
    assert not they_take(scheme, BODIES[0], ours(scheme), FOREIGN)
    with pytest.raises(Refused, match="no_matching_signature"):
        verify(theirs(scheme), BODIES[0], keys=FOREIGN, scheme=scheme)


@schemes
@pytest.mark.parametrize("part", ["-id", "-timestamp", "body"])
def test_nobody_verifies_what_was_changed_on_the_way(scheme: str, part: str) -> None:
    body = BODIES[0] + (b" " if part == "body" else b"")
    for headers, check in (
        (ours(scheme), lambda changed: library(scheme).verify(body, changed)),
        (theirs(scheme), lambda changed: verify(changed, body, keys=KEY, scheme=scheme)),
    ):
        changed = {
            name: value[:-1] + chr(ord(value[-1]) ^ 1) if name.endswith(part) else value
            for name, value in headers.items()
        }
        with pytest.raises((*REFUSAL, Refused)):
            check(changed)


@schemes
@pytest.mark.parametrize("seconds", [-330, 330])
def test_nobody_takes_what_is_too_old_or_too_new(scheme: str, seconds: int) -> None:
    moment = int(time.time()) + seconds
    with pytest.raises(REFUSAL, match="timestamp too"):
        library(scheme).verify(BODIES[0], ours(scheme, now_ms=moment * 1000))
    with pytest.raises(Refused, match="stale"):
        verify(theirs(scheme, at=moment), BODIES[0], keys=KEY, scheme=scheme)


@given(st.dictionaries(st.text(), st.text()), st.binary(min_size=24, max_size=64))
def test_every_body_and_every_key_works_both_ways(payload: dict[str, str], material: bytes) -> None:
    key, body = SigningKey(material), json.dumps(payload, ensure_ascii=False).encode("utf-8", "replace")
    library("svix", key).verify(body, ours("svix", body, key=key))
    assert verify(theirs("svix", body, key=key), body, keys=key, scheme="svix").body == body


@schemes
def test_the_svix_library_reads_the_names_of_both(scheme: str) -> None:
    assert they_take("svix", BODIES[0], ours(scheme))
