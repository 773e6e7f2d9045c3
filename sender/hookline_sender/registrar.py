"""Registering customers' endpoints: what a service calls on their behalf, while it publishes and workers deliver.

A change is decided on what was read, and written by a script that refuses it when that is not so any more; then it is
decided again. So of two that register or rotate at the same time none undoes what the other did.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Self

from hookline_sender import overview, resealing
from hookline_sender.deployment import Deployment
from hookline_sender.destinations import ResolvedDestination
from hookline_sender.egress.adapter import as_transport
from hookline_sender.egress.named import transport_class
from hookline_sender.egress.urls import allowed_url
from hookline_sender.engine import registry
from hookline_sender.engine.standing import Standing, standing
from hookline_sender.engine.store import RedisStore
from hookline_sender.enrolment import (
    MAX_OVERLAP,
    check_events,
    check_fanout,
    check_key_is_known,
    keys_to_register,
    rotated,
    webhook_of,
)
from hookline_sender.errors import InvalidDestination
from hookline_sender.given import check_given
from hookline_sender.matching import snapshot_of
from hookline_sender.opened import OpenRegistry, tries
from hookline_sender.paging import checked_limit
from hookline_sender.probing import Probe
from hookline_sender.ranges import fault
from hookline_sender.registration import Destination, Registration, Secrets, decode_subscription
from hookline_sender.vault import described
from hookline_shared.errors import HooklineError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hookline_sender.egress.adapter import HttpxShaped
    from hookline_sender.egress.named import TransportName
    from hookline_sender.egress.transport import Transport
    from hookline_sender.engine.registry import Lookup
    from hookline_sender.overview import DestinationPage
    from hookline_sender.plan import Plan, Webhook
    from hookline_sender.probing import Ping
    from hookline_sender.resealing import Resealed
    from hookline_shared.keys import SigningKey


class Destinations:
    """The registered destinations of one plan's webhooks. Making one does no I/O; open it with `async with`.

    deployment: None means Deployment.from_env(plan, environ), read when it opens.
    environ: where the key-encryption keys are read, at every call; None means os.environ.
    transport: how pings and handshakes are sent, as a Worker's; what is given stays the caller's to close.

    Changes need the grant `register:webhook:NAME`. What reads or writes URLs, headers or keys (`register`, `get`,
    `list`, `rotate_key`, `ping`, `reseal`) needs the key-encryption keys and raises InvalidDeployment without the right
    ones. Everything raises RedisUnavailable and WeakDurability.
    """

    def __init__(
        self,
        plan: Plan,
        deployment: Deployment | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        transport: Transport | HttpxShaped | TransportName | None = None,
    ) -> None:
        check_given(plan, deployment)
        self._plan, self._deployment, self._environ = plan, deployment, environ
        name = transport if isinstance(transport, str) else "httpx"
        self._transport_class = transport_class(name)
        self._given = None if isinstance(transport, str) else transport
        self._open: OpenRegistry | None = None

    async def __aenter__(self) -> Self:
        """Connect, check the server's durability and bind the plan. Raises like opening a publisher."""
        if self._open is not None:
            raise HooklineError("these destinations are already open: share them, or make a second object")
        deployment = self._deployment or Deployment.from_env(self._plan, self._environ)
        self._transport: Transport = (
            self._transport_class(deployment.address_policy)
            if self._given is None
            else as_transport(self._given, deployment.address_policy)
        )
        self._open = OpenRegistry(deployment, await RedisStore.connect(deployment, self._plan), self._environ)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect."""
        opened, self._open = self._open, None
        if opened is not None:
            await opened.store.aclose()
            if self._given is None:
                await self._transport.aclose()

    async def register(self, destination: Destination, *, signing_key: SigningKey | None = None) -> Registration:
        """Register a destination, or register it anew under its id. Whatever is published after this reaches it.

        signing_key: one that the receiver has already; it takes the place of all others at once. None generates one
            the first time and keeps the keys there are after that. To change keys without a gap, use `rotate_key`.

        A webhook with handshake=True asks the destination whether it wants deliveries, signed with its key, unless URL
        and keys stay as they are. Its receiver needs the key before that: give one of SigningKey.generate().

        Raises:
            NotGranted.
            InvalidDestination: the webhook is not for subscribers or lacks the event, the id is somebody else's, or a
                handshake has no key.
            HandshakeFailed: it did not say that it wants deliveries.
            UnsafeDestination: the URL is not allowed. InvalidSigningKey: the key does not fit the profile.
            FanoutExceeded: an event would reach more than 128 destinations.
            DestinationBusy: the id was removed and is not free yet. StaleRegistry: too many changes at the same time.
        """
        opened = self._opened()
        opened.require(destination.webhook)
        webhook = webhook_of(self._plan, destination.webhook)
        check_events(self._plan, webhook, destination)
        allowed_url(destination.url, opened.deployment.address_policy)
        vault = opened.vault
        profile, owner, asks = destination.profile or webhook.profile, destination.tenant or "", webhook.handshake
        async for _ in tries(destination.id):
            # The revision first: what changes after it was read is noticed when the script compares it.
            entries = await opened.run(registry.tenant_entries(opened.store.layout, owner))
            found, moment = await opened.lookup(destination.id)
            others = tuple(each for each in entries.entries if each.id != destination.id)  # its own may be damaged
            check_fanout(self._plan, snapshot_of(replace(entries, entries=others)), destination)
            kept = found is not None and found.tenant == owner and signing_key is None
            before = vault.open(found) if found is not None and kept else None
            keys = keys_to_register(profile, signing_key, before.keys if before else (), moment.now_ms)
            secrets = Secrets(destination.url, tuple(destination.headers.items()), keys)
            if asks and (before is None or before.url != destination.url):
                check_key_is_known(webhook, destination, known=before is not None or signing_key is not None)
                await self._probe(webhook, destination, secrets, moment).validate()
                asks = False
            draft = vault.draft(webhook, destination, secrets, decided_on=entries.revision)
            command = registry.register(opened.store.layout, self._plan.fingerprint, draft)
            if entry := await opened.write(command):
                return Registration(replace(destination, paused=entry.paused, disabled=entry.disabled), keys[0].key)
        raise AssertionError  # the tries end by an error

    async def rotate_key(
        self,
        id: str,  # noqa: A002 - the public name
        *,
        overlap: float = 86_400.0,
        signing_key: SigningKey | None = None,
    ) -> Registration:
        """Sign with a new key from the next claim on, and for `overlap` seconds with the keys before it as well.

        overlap: 0 to 30 days, for the receiver to learn the new key; one that knows either refuses nothing meanwhile.
        signing_key: one that the receiver has already; None generates one of the kind in use.

        Raises:
            NotGranted, UnknownDestination, StaleRegistry. InvalidSigningKey: the key does not fit the profile.
            InvalidDestination: overlap is out of its range, or 16 keys sign already.
        """
        if wrong := fault("overlap", overlap, 0, MAX_OVERLAP):
            raise InvalidDestination(f"{wrong} seconds")
        opened = self._opened()
        async for _ in tries(id):
            found, moment = await opened.find(id)
            webhook_name = decode_subscription(found.entry.public).webhook
            opened.require(webhook_name)
            webhook, vault = webhook_of(self._plan, webhook_name), opened.vault
            secrets = vault.open(found)
            destination = described(found, secrets)
            profile = destination.profile or webhook.profile
            keys = rotated(profile, signing_key, secrets.keys, moment.now_ms, overlap=overlap)
            changed = replace(secrets, keys=keys)
            draft = vault.draft(webhook, destination, changed, decided_on=str(found.entry.version))
            command = registry.configure(opened.store.layout, self._plan.fingerprint, draft)
            if entry := await opened.write(command):
                return Registration(replace(destination, paused=entry.paused, disabled=entry.disabled), keys[0].key)
        raise AssertionError  # the tries end by an error

    async def get(self, id: str) -> Destination:  # noqa: A002 - the public name
        """One destination as it is registered. Raises UnknownDestination."""
        opened = self._opened()
        found, _ = await opened.find(id)
        return described(found, opened.vault.open(found))

    async def list(
        self, *, tenant: str | None = None, webhook: str | None = None, limit: int = 100, after: str = ""
    ) -> tuple[Destination, ...]:
        """At most `limit` (1-1000) destinations of a tenant, by id; None means those that were registered without one.

        after: the id with which the page before ended. Raises InvalidQuestion.
        """
        checked_limit(limit)
        opened = self._opened()
        vault, layout = opened.vault, opened.store.layout
        known = snapshot_of(await opened.run(registry.tenant_entries(layout, tenant or ""))).subscribers
        ids = [each.id for each in known if webhook in (None, each.subscription.webhook) and each.id > after]
        if not (page := ids[:limit]):
            return ()
        found = (await opened.run(registry.lookup(layout, page))).found
        return tuple(described(each, vault.open(each)) for each in found if each is not None)

    async def overview(
        self, *, tenant: str = "", webhook: str = "", limit: int = 100, after: str = ""
    ) -> DestinationPage:
        """Who is registered, without anything sealed, so without the key-encryption keys: of a tenant, or of all.

        A tenant's are at most `limit` (1-1000), by id. All are about `limit`, in no order: whoever is registered from
        the first page to the last is on one of them, maybe on two, whatever else comes and goes meanwhile.
        after: what the page before says. Raises InvalidQuestion.
        """
        return await overview.of(self._opened(), tenant, webhook=webhook, limit=limit, after=after)

    async def reseal(self, *, limit: int = 1000, after: str = "") -> Resealed:
        """Seal about `limit` (1-1000) destinations anew under the newest key-encryption key, so that older ones can go.

        Call it again with the answer's `after` until that is "". Safe beside everything else, and to begin again: what
        is under the newest key already costs a look. A destination that none of the keys opens is named in the answer.
        Needs the grant for each webhook of the plan with subscribers. Raises InvalidQuestion, NotGranted.
        """
        return await resealing.reseal(self._opened(), self._plan, limit=limit, after=after)

    async def remove(self, id: str) -> None:  # noqa: A002 - the public name
        """Remove a destination: whatever is published after this does not reach it, and what waits is cancelled.

        Attempts in progress finish. The id is free again when none of its tasks is left; its dead letters can be
        redriven only when the same tenant has registered the id again. Raises NotGranted, UnknownDestination.
        """
        opened = self._opened()
        await opened.granted(id)
        await opened.run(registry.remove(opened.store.layout, id))

    async def pause(self, id: str) -> None:  # noqa: A002 - the public name
        """Start no more attempts. Publications still make tasks, and deadlines run. Raises like `remove`."""
        await self._set_paused(id, paused=True)

    async def resume(self, id: str) -> None:  # noqa: A002 - the public name
        """Deliver again, what has waited first, also what was disabled. Raises like `remove`."""
        await self._set_paused(id, paused=False)

    async def health(self, id: str) -> Standing:  # noqa: A002 - the public name
        """How a destination stands: what waits for it, and whether it fails. Raises UnknownDestination."""
        opened = self._opened()
        found, _ = await opened.find(id)
        return await opened.run(standing(opened.store.layout, found.entry.lane, id))

    async def ping(self, id: str) -> Ping:  # noqa: A002 - the public name
        """Send the destination one signed test request, `hookline.ping`, and tell what came of it.

        It goes the way deliveries go and within their timeout, also to a paused one. No task, limit or breaker hears of
        it. Raises like `remove`, and InvalidDestination when the plan lacks its webhook.
        """
        opened = self._opened()
        found, moment = await opened.find(id)
        webhook_name = decode_subscription(found.entry.public).webhook
        opened.require(webhook_name)
        webhook, secrets = webhook_of(self._plan, webhook_name), opened.vault.open(found)
        return await self._probe(webhook, described(found, secrets), secrets, moment).ping()

    def _probe(self, webhook: Webhook, destination: Destination, secrets: Secrets, moment: Lookup) -> Probe:
        to = ResolvedDestination(
            destination.id,
            secrets.url,
            tuple(each.key for each in secrets.keys if each.signs_at(moment.now_ms)),
            destination.profile or webhook.profile,
            tuple((name.encode(), value.encode()) for name, value in secrets.headers),
        )
        return Probe(self._transport, to, moment.stamp_ms, webhook.policy.timeout)

    async def _set_paused(self, id: str, *, paused: bool) -> None:  # noqa: A002 - the public name
        opened = self._opened()
        await opened.granted(id)
        await opened.run(registry.set_paused(opened.store.layout, id, paused=paused))

    def _opened(self) -> OpenRegistry:
        if self._open is None:
            raise HooklineError("the destinations are not open: use `async with destinations`")
        return self._open
