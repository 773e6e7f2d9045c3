"""What may be registered, and with which keys. Decisions only, no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hookline_sender.errors import FanoutExceeded, InvalidDestination
from hookline_sender.publication import MAX_FANOUT
from hookline_sender.registration import TimedKey, matches
from hookline_shared.errors import InvalidSigningKey
from hookline_shared.keys import MAXIMUM_KEYS, SigningKey
from hookline_shared.profiles import get_profile
from hookline_shared.profiles.entries import MAXIMUM_ED25519

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookline_sender.matching import Snapshot
    from hookline_sender.plan import Plan, Webhook
    from hookline_sender.registration import Destination

MAX_OVERLAP: Final = 30 * 86_400.0
"""Longest time in seconds for which a rotated key goes on to sign."""


def webhook_of(plan: Plan, name: str) -> Webhook:
    """The webhook that destinations are registered for. Raises InvalidDestination when it is not for that."""
    webhook = plan.webhooks.get(name)
    if webhook is None or not webhook.subscribers:
        raise InvalidDestination(
            f'the plan has no webhook "{name}" with subscribers: declare plan.webhook("{name}", subscribers=True)'
        )
    return webhook


def check_events(plan: Plan, webhook: Webhook, destination: Destination) -> None:
    """Refuse the name of an event that the webhook never carries; a pattern may wait for events to come."""
    carried = [event for event in plan.events if webhook.carries(event)]
    for pattern in destination.events:
        if not pattern.endswith("*") and pattern not in carried:
            raise InvalidDestination(
                f'the webhook "{webhook.name}" carries no event "{pattern}", only {", ".join(carried)}'
            )


def check_fanout(plan: Plan, tenant: Snapshot, destination: Destination) -> None:
    """Refuse what would make an event reach more than 128 destinations. Raises FanoutExceeded."""
    for event in plan.events:
        bindings = plan.bindings_of(event)
        subscribed = [webhook for webhook in bindings if webhook.subscribers]
        carried = destination.webhook in {webhook.name for webhook in subscribed}
        if not carried or not any(matches(pattern, event) for pattern in destination.events):
            continue
        others = sum(target.destination != destination.id for target in tenant.matching(event, subscribed))
        fanout = len(bindings) - len(subscribed) + others + 1
        if fanout > MAX_FANOUT:
            raise FanoutExceeded(event, fanout, MAX_FANOUT)


def check_key_is_known(webhook: Webhook, destination: Destination, *, known: bool) -> None:
    """Refuse a handshake whose signature the receiver could not verify, because the key would be made only now."""
    if not known:
        raise InvalidDestination(
            f'the webhook "{webhook.name}" asks {destination.id!r} before it is registered (handshake=True), so its '
            "receiver needs the key first: make one with SigningKey.generate(), give it to the receiver, and register "
            "with signing_key="
        )


def checked_key(key: SigningKey, profile: str) -> SigningKey:
    """A key that signs under the profile. Raises InvalidSigningKey, UnknownProfile."""
    fault = get_profile(profile).key_fault(key)
    if fault is None and not key.can_sign:
        fault = "a whpk_ key only verifies: give the whsk_ key that belongs to it"
    if fault is not None:
        raise InvalidSigningKey(fault)
    return key


def keys_to_register(
    profile: str, given: SigningKey | None, before: Sequence[TimedKey], now_ms: int
) -> tuple[TimedKey, ...]:
    """The keys of a registration: the given one, else those there were, else a new one. Raises InvalidSigningKey."""
    if given is not None:
        return (TimedKey(checked_key(given, profile)),)
    kept = tuple(each for each in before if each.signs_at(now_ms))
    for each in kept:
        checked_key(each.key, profile)
    return kept or (TimedKey(SigningKey.generate()),)


def rotated(
    profile: str, given: SigningKey | None, before: Sequence[TimedKey], now_ms: int, *, overlap: float
) -> tuple[TimedKey, ...]:
    """The keys after a rotation: the new one first, and those before it until the overlap, in seconds, is over.

    Raises InvalidSigningKey: the key does not fit. InvalidDestination: too many keys would sign.
    """
    if given is None:
        asymmetric = bool(before) and before[0].key.ed25519 is not None
        given = SigningKey.generate_ed25519() if asymmetric else SigningKey.generate()
    until_ms = now_ms + round(overlap * 1000)
    ending = [
        TimedKey(each.key, until_ms if each.until_ms is None else min(each.until_ms, until_ms))
        for each in before
        if each.key != given
    ]
    keys = (TimedKey(checked_key(given, profile)), *(each for each in ending if each.signs_at(now_ms)))
    pairs = sum(each.key.ed25519 is not None for each in keys)
    if len(keys) > MAXIMUM_KEYS or pairs > MAXIMUM_ED25519:
        raise InvalidDestination(
            f"{len(keys) - 1} keys sign already, and a receiver reads {MAXIMUM_KEYS} signatures, {MAXIMUM_ED25519} of "
            "them Ed25519: wait until an overlap ends, or use overlap=0"
        )
    return keys
