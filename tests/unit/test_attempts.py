from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline_sender import SigningKey
from hookline_sender.attempts import Attempts, Claim, RedisClock, settlement
from hookline_sender.destinations import ResolvedDestination
from hookline_sender.egress.transport import WireResponse
from hookline_sender.engine.records import Dead, Delivered, Outcome, Released, Retry
from tests.support import run
from tests.support_sender import REDIS_MS, TASK, deployment_on, environ_of, impatient, shop

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hookline_sender.registered import Registered

NOW = 1000.0  # monotonic


def claim(now: float = NOW, *, timeout: float = 10.0, believed: float = 25.0, **changes: Any) -> Claim:
    """A claim that is believed for 25 seconds from monotonic `now` on."""
    policy = impatient(timeout=timeout, attempts=3)
    return Claim(replace(TASK, **changes), policy, now + believed, RedisClock(REDIS_MS, now))


@given(st.floats(0.001, 30.0), st.floats(0.0, 60.0), st.floats(0.0, 120.0), st.integers(1, 120_000))
def test_no_attempt_starts_that_could_outlast_the_belief(  # cases: A02 A68
    timeout: float, late: float, believed: float, deadline: int
) -> None:
    held = claim(timeout=timeout, believed=believed, deadline_ms=REDIS_MS + deadline)
    now = NOW + late
    if held.refusal(now) is None:
        assert now + held.timeout(now) <= held.believed_until
        assert held.clock.at(now) + held.timeout(now) * 1000 <= held.task.deadline_ms + 1


def test_a_lease_without_time_for_the_attempt_is_given_back() -> None:
    assert claim().refusal(NOW + 15.0) is None
    assert claim().refusal(NOW + 15.1) == Released()


def test_a_signature_carries_redis_own_time_and_deadlines_the_engines() -> None:
    clock = RedisClock(REDIS_MS, NOW, shift_ms=3_600_000)
    assert clock.at(NOW + 1.0) == REDIS_MS + 1_000
    assert clock.stamp(NOW + 1.0) == REDIS_MS + 1_000 - 3_600_000


def test_the_deadline_cuts_the_timeout_and_ends_the_delivery() -> None:
    assert claim(deadline_ms=REDIS_MS + 4_000).timeout(NOW + 1.0) == pytest.approx(3.0)
    assert claim(deadline_ms=REDIS_MS + 4_000).refusal(NOW + 4.0) == Dead("deadline_exceeded", 0)


@pytest.mark.parametrize(
    ("attempt", "outcome", "settled", "delay_ms"),
    [
        (1, Delivered(204, 5), Delivered(204, 5), 0),
        (1, Retry("http_5xx", 5, 500), Retry("http_5xx", 5, 500), 10),
        (2, Retry("http_5xx", 5, 500), Retry("http_5xx", 5, 500), 20),
        (2, Retry("http_5xx", 5, 503, retry_after=9.0), Retry("http_5xx", 5, 503, retry_after=9.0), 50),
        (3, Retry("http_5xx", 5, 500), Dead("http_5xx", 5, 500), 0),
        (3, Released(), Released(), 0),
    ],
)
def test_what_is_settled_follows_the_policy(attempt: int, outcome: Outcome, settled: Outcome, delay_ms: int) -> None:
    made = settlement(claim(attempt=attempt), outcome, 0.5)
    assert (made.outcome, made.delay_ms, made.token) == (settled, delay_ms, TASK.token)


class Transport:
    """Calls `act` with the hook for the first byte, then answers 204."""

    def __init__(self, act: Callable[[Callable[[], None]], object]) -> None:
        self._act, self.deadlines, self.sent = act, list[float](), dict[bytes, bytes]()
        self.posting = asyncio.Event()

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
        assert on_sent is not None
        self.deadlines.append(deadline)
        self.sent = dict(headers)
        self._act(on_sent)
        self.posting.set()
        await asyncio.sleep(0)
        return WireResponse(204)

    async def aclose(self) -> None: ...


def attempts_over(transport: Transport) -> Attempts:
    plan, _ = shop("billing")
    environ = environ_of(billing="http://127.0.0.1:2/")
    return Attempts(plan, deployment_on("redis://nowhere", "shop"), transport, environ)


def test_an_attempt_has_its_timeout_and_is_delivered() -> None:
    async def go() -> None:
        transport = Transport(lambda on_sent: on_sent())
        now = time.monotonic()
        outcome = await attempts_over(transport).make(claim(now))
        assert isinstance(outcome, Delivered)
        assert now + 10.0 <= transport.deadlines[0] <= time.monotonic() + 10.0

    run(go())


def test_a_request_is_stamped_with_redis_own_time_after_that_was_set_back() -> None:
    async def go() -> None:
        transport, now = Transport(lambda on_sent: on_sent()), time.monotonic()
        set_back = replace(claim(now), clock=RedisClock(REDIS_MS, now, shift_ms=3_600_000))
        await attempts_over(transport).make(set_back)
        assert 0 <= int(transport.sent[b"x-axiom-timestamp"]) - (REDIS_MS - 3_600_000) < 60_000

    run(go())


def test_the_keys_of_a_registered_destination_are_those_of_the_engines_time() -> None:
    class Asked:
        def resolve(self, task: object, *, profile: str, now_ms: int) -> ResolvedDestination:
            asked.append(now_ms - REDIS_MS)
            return ResolvedDestination("acme", "http://127.0.0.1:2/", (SigningKey.generate(),), profile, ())

    async def go() -> None:
        now = time.monotonic()
        attempts = replace(attempts_over(Transport(lambda on_sent: on_sent())), registered=cast("Registered", Asked()))
        await attempts.make(replace(claim(now, config=7), clock=RedisClock(REDIS_MS, now, shift_ms=3_600_000)))

    asked = list[int]()
    run(go())
    assert 0 <= asked[0] < 60_000


@pytest.mark.parametrize(("event", "named"), [("order.paid", None), ("order.added-by-a-newer-plan", True)])
def test_an_event_the_plan_does_not_have_is_named_in_case_its_body_does_not(event: str, *, named: bool | None) -> None:
    async def go() -> None:
        transport = Transport(lambda on_sent: on_sent())
        await attempts_over(transport).make(claim(time.monotonic(), event=event))
        assert transport.sent.get(b"x-axiom-event") == (event.encode() if named else None)

    run(go())


class Exit(BaseException):
    """Not an Exception, as what test runners and other event loops raise."""


@pytest.mark.parametrize("error", [Exit, asyncio.CancelledError, RecursionError, BaseExceptionGroup("", [Exit()])])
def test_whatever_a_transport_raises_is_an_outcome(error: BaseException) -> None:
    def act(on_sent: Callable[[], None]) -> None:
        on_sent()
        raise error

    assert isinstance(run(attempts_over(Transport(act)).make(claim(time.monotonic()))), Retry)


def test_no_byte_leaves_when_the_loop_was_blocked_past_the_belief() -> None:  # cases: A68
    def block_then_send(on_sent: Callable[[], None]) -> None:
        time.sleep(0.15)  # a handler elsewhere that blocks the event loop
        on_sent()

    async def go() -> None:
        held = claim(time.monotonic(), timeout=0.05, believed=0.1)
        assert await attempts_over(Transport(block_then_send)).make(held) == Released()

    run(go())


class SlowlyRead(dict[str, str]):
    """An environment that blocks the whole process while it is read, as a debugger or a busy machine does."""

    def __getitem__(self, name: str) -> str:
        time.sleep(0.2)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        time.sleep(0.2)
        return super().get(name, default)


def test_an_attempt_that_was_held_up_after_it_began_still_ends_within_the_belief() -> None:
    async def go() -> None:
        transport = Transport(lambda on_sent: on_sent())
        slow = replace(attempts_over(transport), environ=SlowlyRead(environ_of(billing="http://127.0.0.1:2/")))
        held = claim(time.monotonic(), timeout=10.0, believed=10.1)
        await slow.make(held)
        assert transport.deadlines[0] <= held.believed_until

    run(go())


@pytest.mark.parametrize(("sent", "expected"), [(True, "interrupted"), (False, None)])
def test_an_interrupted_attempt_is_given_back_only_before_its_first_byte(*, sent: bool, expected: str | None) -> None:
    async def go() -> None:
        transport = Transport(lambda on_sent: on_sent() if sent else None)
        attempt = asyncio.create_task(attempts_over(transport).make(claim(time.monotonic())))
        await transport.posting.wait()
        attempt.cancel()
        assert getattr(await attempt, "code", None) == expected

    run(go())
