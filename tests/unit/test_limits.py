"""Every limit: what is just within it is taken, what is just beyond it is refused by name."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from hookline_sender import (
    DeliveryPolicy,
    Deployment,
    Destination,
    FanoutExceeded,
    HooklineError,
    InvalidDeployment,
    InvalidDestination,
    InvalidPayload,
    InvalidPlan,
    InvalidQuestion,
    NamespaceFull,
    PayloadTooLarge,
    Plan,
    SyncPublisher,
    UnsafeDestination,
    Worker,
)
from hookline_sender.egress.urls import parse_url
from hookline_sender.paging import checked_limit
from hookline_sender.sealing import Sealer
from hookline_sender.testing import record

if TYPE_CHECKING:
    from collections.abc import Callable

DAY = 86_400.0
HUGE = 10**400
"""A whole number that no float can hold."""


def policy(**changes: Any) -> DeliveryPolicy:
    return DeliveryPolicy(**({"attempts": 16, "backoff": 121.0, "max_backoff": 3600.0} | changes))


def deployment(**changes: Any) -> Deployment:
    return Deployment("redis://r", **({"namespace": "shop", "grants": {"publish:*"}} | changes))


def destination(**changes: Any) -> Destination:
    return Destination(**({"id": "acme", "webhook": "customers", "url": "https://acme.example/"} | changes))


def publish(
    *, body: int = 1, webhooks: int = 1, times: int = 1, key: str = "i", delay: Any = 0.0, **limits: Any
) -> None:
    """Publish bytes under that id, by the rules of Redis and without it; several times under others."""
    plan = Plan("shop")
    note = plan.raw_event("note.made")
    for number in range(webhooks):
        plan.webhook(f"w{number}", note)
    publisher = SyncPublisher(plan, deployment(**limits))
    with record(publisher):
        for number in range(times):
            publisher.publish(note, b"x" * body, id=f"{number}{key[1:]}", delay=delay)


@dataclass(frozen=True, slots=True)
class Limit:
    """`ask(within)` is taken and `ask(beyond)` raises the error."""

    ask: Callable[[Any], object]
    within: Any
    beyond: Any
    error: type[HooklineError]


def url(size: int) -> str:
    return "https://acme.example/".ljust(size, "x")


OF_THE_REFERENCE = {
    "payload of 64 KiB": Limit(lambda n: publish(body=n), 65_536, 65_537, PayloadTooLarge),
    "fan-out of 128": Limit(lambda n: publish(webhooks=n), 128, 129, FanoutExceeded),
    "records of a namespace": Limit(lambda n: publish(times=n, max_records=3), 3, 4, NamespaceFull),
    "at least 1 attempt": Limit(lambda n: policy(attempts=n, backoff=1.0), 2, 0, InvalidPlan),
    "at most 16 attempts": Limit(lambda n: policy(attempts=n), 16, 17, InvalidPlan),
    "backoff cap of an hour": Limit(lambda s: policy(max_backoff=s), 3600.0, 3600.001, InvalidPlan),
    "deadline of seven days": Limit(lambda s: policy(deadline=s), 7 * DAY, 7 * DAY + 0.001, InvalidPlan),
    "webhook timeout of 30 s": Limit(lambda s: policy(timeout=s), 30.0, 30.001, InvalidPlan),
    "retention from a minute": Limit(lambda s: deployment(retention=s), 60.0, 59.999, InvalidDeployment),
    "retention to 30 days": Limit(lambda s: deployment(retention=s), 30 * DAY, 30 * DAY + 1, InvalidDeployment),
}
OUR_OWN = {
    "dead retention from a minute": Limit(lambda s: deployment(dead_retention=s), 60.0, 59.999, InvalidDeployment),
    "dead retention to 30 days": Limit(
        lambda s: deployment(dead_retention=s), 30 * DAY, 30 * DAY + 1, InvalidDeployment
    ),
    "lease": Limit(lambda s: deployment(lease=s), 600.0, 600.1, InvalidDeployment),
    "min_replicas": Limit(lambda n: deployment(min_replicas=n), 16, 17, InvalidDeployment),
    "freshness above the timeout": Limit(lambda s: policy(timeout=s, replay_window=20.0), 19.9, 20.0, InvalidPlan),
    "jitter": Limit(lambda share: policy(jitter=share), 1.0, 1.01, InvalidPlan),
    "delay below the deadline": Limit(lambda s: publish(delay=s), DAY - 1, DAY, InvalidPayload),
    "id": Limit(lambda n: publish(key="i" * n), 256, 257, InvalidPayload),
    "a webhook's concurrency": Limit(lambda n: Plan("s").webhook("w", concurrency=n), 1024, 1025, InvalidPlan),
    "a worker's concurrency": Limit(lambda n: Worker(Plan("s"), concurrency=n), 4096, 4097, InvalidPlan),
    "a destination's concurrency": Limit(lambda n: destination(concurrency=n), 1024, 1025, InvalidDestination),
    "patterns": Limit(lambda n: destination(events=[f"e{i}" for i in range(n)]), 64, 65, InvalidDestination),
    "headers": Limit(lambda n: destination(headers={f"x-{i}": "v" for i in range(n)}), 16, 17, InvalidDestination),
    "bytes of headers": Limit(lambda n: destination(headers={"x-a": "v" * n}), 4093, 4094, InvalidDestination),
    "URL": Limit(lambda n: parse_url(url(n)), 2048, 2049, UnsafeDestination),
    "listed at once": Limit(checked_limit, 1000, 1001, InvalidQuestion),
    "key-encryption keys": Limit(
        lambda n: Sealer.parse(" ".join(["hex:" + "ab" * 32] * n), source="KEK"), 16, 17, InvalidDeployment
    ),
}


@pytest.mark.filterwarnings("ignore::hookline_sender.HooklineWarning")
@pytest.mark.parametrize("name", OF_THE_REFERENCE | OUR_OWN)
def test_a_limit_takes_what_is_within_it_and_refuses_by_name_what_is_beyond(name: str) -> None:
    limit = (OF_THE_REFERENCE | OUR_OWN)[name]
    limit.ask(limit.within)
    with pytest.raises(limit.error):
        limit.ask(limit.beyond)


NUMBERS: list[tuple[Callable[..., object], str]] = [
    *(
        (DeliveryPolicy, each.name)
        for each in dataclasses.fields(DeliveryPolicy)
        if isinstance(each.default, int | float)
    ),
    *((deployment, each.name) for each in dataclasses.fields(Deployment) if type(each.default) in (int, float)),
    *((deployment, "max_per_destination"), (deployment, "max_dead"), (destination, "concurrency")),
]


@pytest.mark.parametrize("wrong", [HUGE, -HUGE, float("inf"), float("nan"), "7", b"7", (), True])
@pytest.mark.parametrize(("make", "name"), NUMBERS, ids=[name for _, name in NUMBERS])
def test_what_is_no_number_or_beyond_all_is_refused_by_name(make: Any, name: str, wrong: object) -> None:
    with pytest.raises((InvalidPlan, InvalidDeployment, InvalidDestination), match=name.partition("_")[0]):
        make(**{name: wrong})
