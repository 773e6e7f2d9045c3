"""One attempt of the sender, handed to a receiver without a socket in between, in every profile."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from hookline_receiver import Delivery, MemoryLedger, Receiver
from hookline_receiver.testing import sign_request
from hookline_sender import Deployment, InvalidDeployment, Plan, SigningKey
from hookline_sender.destinations import ResolvedDestination, resolve
from hookline_sender.egress.transport import WireResponse, check_headers
from hookline_sender.engine.records import Dead, Delivered, Outcome, Retry
from hookline_sender.policy import DeliveryPolicy
from hookline_sender.webhook import attempt
from hookline_shared import InvalidSigningKey
from hookline_shared.ed25519 import KeyPair
from tests.support import run
from tests.support_receiver import NOW_MS, Order, call
from tests.support_sender import TASK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
BODY = '{"type":"order.paid","data":{"id":"№ 1"}}'.encode()
PROFILES = ["axiom", "standard-webhooks", "svix"]
PAIR = SigningKey.of_pair(KeyPair.from_seed(bytes(range(32))))


class ToReceiver:
    """A transport whose other end is an application in this process."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    async def post(
        self,
        url: str,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
        *,
        deadline: float,
        destination: str,
        on_sent: Callable[[], None] | None = None,
    ) -> WireResponse:
        check_headers(headers)
        return WireResponse((await call(self._receiver, headers, body)).status)

    async def aclose(self) -> None:
        pass


def receiver(profile: str, *keys: SigningKey) -> tuple[Receiver, list[Delivery]]:
    made = Receiver("orders", keys=keys, ledger=MemoryLedger(allow_volatile=True), scheme=profile, clock=lambda: NOW_MS)
    seen: list[Delivery] = []

    @made.on("order.paid", Order)
    async def paid(event: object, delivery: Delivery) -> None:
        del event
        seen.append(delivery)

    return made, seen


async def sent(profile: str, key_text: str, to: Receiver) -> Outcome:
    environ = {"HOOKLINE_WEBHOOK_BILLING_URL": "https://shop.example/", "HOOKLINE_WEBHOOK_BILLING_KEY": key_text}
    destination = resolve(Deployment("redis://r", namespace="shop"), "billing", environ, profile=profile)
    task = dataclasses.replace(TASK, body=BODY, attempt=3, traceparent=TRACE)
    wire = ToReceiver(to)
    return await attempt(task, destination, wire, timestamp_ms=NOW_MS, timeout=5, policy=DeliveryPolicy())


@pytest.mark.parametrize("profile", PROFILES)
def test_an_attempt_is_verified_and_handled(profile: str) -> None:
    key = SigningKey.generate()
    to, seen = receiver(profile, key)
    assert isinstance(run(sent(profile, key.reveal(scheme=profile), to)), Delivered)
    (found,) = seen
    assert (found.id, found.attempt, found.traceparent) == (TASK.delivery_id, 3, TRACE)
    assert (found.timestamp_ms, found.body) == (NOW_MS, BODY)


def test_a_date_that_an_answer_names_is_counted_from_when_it_came() -> None:
    class Busy:
        async def post(self, *_: Any, **__: Any) -> WireResponse:
            return WireResponse(503, ((b"retry-after", b"Sun, 06 Nov 1994 08:50:37 GMT"),))

        async def aclose(self) -> None: ...

    to = ResolvedDestination("billing", "https://shop.example/", (SigningKey.generate(),))

    async def go() -> Outcome:
        started, sent_ms = asyncio.get_running_loop().time() - 20, 784_111_777_000  # 08:49:37
        given: Any = {"timestamp_ms": sent_ms, "timeout": 30, "policy": DeliveryPolicy(), "started": started}
        return await attempt(TASK, to, Busy(), **given)

    assert isinstance(outcome := run(go()), Retry)
    assert outcome.retry_after == pytest.approx(40, abs=5)


@pytest.mark.parametrize("profile", PROFILES[1:])
def test_an_ed25519_attempt_is_verified_with_the_public_key(profile: str) -> None:
    to, seen = receiver(profile, SigningKey.generate(), PAIR.public())
    assert isinstance(run(sent(profile, PAIR.reveal(), to)), Delivered)
    assert len(seen) == 1


@pytest.mark.parametrize("profile", PROFILES[1:])
def test_an_attempt_signed_by_nobody_known_is_refused(profile: str) -> None:
    to, seen = receiver(profile, SigningKey.generate(), SigningKey.generate_ed25519().public())
    assert isinstance(run(sent(profile, PAIR.reveal(), to)), Dead)
    assert to.counters["refused:no_matching_signature"] == 1
    assert seen == []


def test_a_receiver_of_axiom_is_not_built_with_an_ed25519_key() -> None:
    with pytest.raises(InvalidSigningKey, match="axiom has no Ed25519 signatures"):
        receiver("axiom", SigningKey.generate(), PAIR.public())


@pytest.mark.parametrize("profile", PROFILES)
def test_a_plan_takes_every_profile(profile: str) -> None:
    assert Plan("shop").webhook("billing", profile=profile).profile == profile


def test_a_destination_reads_key_text_by_its_profile() -> None:
    text = SigningKey(bytes(range(24))).reveal(scheme="svix")
    environ = {"HOOKLINE_WEBHOOK_BILLING_URL": "https://shop.example/", "HOOKLINE_WEBHOOK_BILLING_KEY": text}
    deployment = Deployment("redis://r", namespace="shop")
    assert resolve(deployment, "billing", environ, profile="svix").keys == (SigningKey(bytes(range(24))),)
    assert resolve(deployment, "billing", environ).keys == (SigningKey(text.encode()),)


@pytest.mark.parametrize("key_text", [PAIR.public().reveal(), "hex:" + "ab" * 32 + "!"])
def test_a_destination_refuses_a_key_that_cannot_sign_and_names_the_variable(key_text: str) -> None:
    environ = {"HOOKLINE_WEBHOOK_BILLING_URL": "https://shop.example/", "HOOKLINE_WEBHOOK_BILLING_KEY": key_text}
    with pytest.raises(InvalidDeployment, match=r"HOOKLINE_WEBHOOK_BILLING_KEY: .*whsk_") as caught:
        resolve(Deployment("redis://r", namespace="shop"), "billing", environ, profile="svix")
    assert key_text not in str(caught.value)


@pytest.mark.parametrize(("profile", "limit"), [("axiom", 131_072), ("standard-webhooks", 2**20), ("svix", 2**20)])
def test_the_limit_of_bodies_is_the_schemes(profile: str, limit: int) -> None:
    key = SigningKey.generate()
    to, _ = receiver(profile, key)
    for size, status in ((limit, 422), (limit + 1, 413)):  # signed, but no event
        headers, body = sign_request("order.paid", bytes(size), key=key, now_ms=NOW_MS, scheme=profile)
        assert run(call(to, headers, body)).status == status
