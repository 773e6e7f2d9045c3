"""What the type checkers must accept and refuse around registered destinations. Never run: see event_types.py."""

from __future__ import annotations

from typing import assert_type

from hookline_sender import Destination, Destinations, Plan, Registration, SigningKey

plan = Plan("market")
webhook = plan.webhook("customers", subscribers=True, concurrency=5, profile="svix")
acme = Destination(
    id="acme",
    webhook="customers",
    url="https://acme.example/",
    events=["order.*"],
    tenant="t1",
    headers={"x-token": "a"},
    profile="svix",
    concurrency=3,
)

plan.webhook("customers", subscribers="yes")  # E: a switch
Destination(id="acme", webhook="customers")  # E: it goes somewhere
Destination("acme", webhook="customers", url="https://acme.example/")  # E: nothing is positional
Destination(id="acme", webhook=webhook, url="https://acme.example/")  # E: the webhook's name
Destination(id="acme", webhook="customers", url="https://acme.example/", headers=[("a", "b")])  # E: a mapping
acme.url = "https://elsewhere.example/"  # E: frozen: register it anew


async def use(destinations: Destinations, key: SigningKey) -> None:
    """Call everything."""
    async with destinations as opened:
        assert_type(opened, Destinations)
    assert_type(await destinations.register(acme), Registration)
    assert_type(await destinations.register(acme, signing_key=key), Registration)
    assert_type((await destinations.rotate_key("acme", overlap=3600)).signing_key, SigningKey)
    assert_type(await destinations.rotate_key("acme", signing_key=key), Registration)
    assert_type(await destinations.get("acme"), Destination)
    assert_type(await destinations.list(tenant="t1", webhook="customers", limit=5, after="a"), tuple[Destination, ...])
    await destinations.pause("acme")
    await destinations.resume("acme")
    await destinations.remove("acme")
    await destinations.register(acme, signing_key="hex:00")  # E: a key, not its text
    await destinations.register("acme")  # E: a destination
    await destinations.rotate_key("acme", 3600)  # E: overlap by name
    await destinations.remove(acme)  # E: an id
