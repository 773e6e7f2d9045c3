"""A service whose customers register endpoints of their own and get the events of their own orders.

Run it:  uvicorn customer_endpoints:app
Needs:   HOOKLINE_REDIS_URL, HOOKLINE_KEY_ENCRYPTION_KEY (made by `hookline keygen`, and kept), and
         HOOKLINE_GRANTS="publish:order.* register:webhook:customers"
Its worker, another process:  hookline worker customer_endpoints:plan
needs HOOKLINE_KEY_ENCRYPTION_KEY as well, and no URL or key of any customer.
"""

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from hookline_sender import (
    Destination,
    DestinationBusy,
    Destinations,
    InvalidDestination,
    Plan,
    Publisher,
    UnknownDestination,
    UnsafeDestination,
)


class OrderPaid(BaseModel):
    """What a customer learns."""

    order_id: str
    amount_cents: int


plan = Plan("market")
order_paid = plan.event("order.paid", OrderPaid)
order_refunded = plan.event("order.refunded", OrderPaid)
plan.webhook("customers", subscribers=True)
publisher = Publisher(plan)
destinations = Destinations(plan)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
    """Both are open while the application runs."""
    async with publisher, destinations:
        yield


app = FastAPI(lifespan=lifespan)


def customer(x_customer: Annotated[str, Header()]) -> str:
    """Who is asking. A real service takes this from a session or a token, never from a header as it is."""
    return x_customer


Customer = Annotated[str, Depends(customer)]


async def owned(endpoint_id: str, asking: Customer) -> Destination:
    """One of the customer's own endpoints; those of others do not exist."""
    found = await destinations.get(endpoint_id)
    if found.tenant != asking:
        raise UnknownDestination(endpoint_id)
    return found


class Endpoint(BaseModel):
    """What a customer tells of an endpoint."""

    url: str
    events: list[str] = ["*"]


def shown(destination: Destination) -> dict[str, object]:
    """What a customer sees of an endpoint; the signing key is shown once, when it is made."""
    return {
        "id": destination.id,
        "url": destination.url,
        "events": list(destination.events),
        "paused": destination.paused,
    }


@app.post("/endpoints", status_code=201)
async def register(endpoint: Endpoint, asking: Customer) -> dict[str, object]:
    """Register an endpoint. Everything that is published for this customer from now on reaches it."""
    made = await destinations.register(
        Destination(
            id=f"ep_{secrets.token_hex(8)}",
            webhook="customers",
            url=endpoint.url,
            events=endpoint.events,
            tenant=asking,
        )
    )
    return shown(made.destination) | {"signing_key": made.signing_key.reveal()}


@app.get("/endpoints")
async def endpoints(asking: Customer) -> list[dict[str, object]]:
    """The customer's endpoints."""
    return [shown(each) for each in await destinations.list(tenant=asking)]


@app.put("/endpoints/{endpoint_id}")
async def change(endpoint: Endpoint, before: Annotated[Destination, Depends(owned)]) -> dict[str, object]:
    """Change an endpoint's URL and events; its key stays."""
    made = await destinations.register(
        Destination(id=before.id, webhook="customers", url=endpoint.url, events=endpoint.events, tenant=before.tenant)
    )
    return shown(made.destination)


@app.post("/endpoints/{endpoint_id}/key")
async def rotate(endpoint: Annotated[Destination, Depends(owned)]) -> dict[str, str]:
    """Make a new key. For a day deliveries are signed with the old one too, so that the customer can change over."""
    made = await destinations.rotate_key(endpoint.id, overlap=86_400.0)
    return {"signing_key": made.signing_key.reveal()}


@app.put("/endpoints/{endpoint_id}/pause", status_code=204)
async def pause(endpoint: Annotated[Destination, Depends(owned)]) -> None:
    """Deliver nothing until the pause ends; what happens meanwhile is delivered then."""
    await destinations.pause(endpoint.id)


@app.delete("/endpoints/{endpoint_id}/pause", status_code=204)
async def resume(endpoint: Annotated[Destination, Depends(owned)]) -> None:
    """End a pause."""
    await destinations.resume(endpoint.id)


@app.delete("/endpoints/{endpoint_id}", status_code=204)
async def remove(endpoint: Annotated[Destination, Depends(owned)]) -> None:
    """Remove an endpoint; what waits for it is cancelled."""
    await destinations.remove(endpoint.id)


@app.exception_handler(UnsafeDestination)
@app.exception_handler(InvalidDestination)
def refuse(_: Request, error: Exception) -> JSONResponse:
    """The texts repeat neither the URL nor a header. They name settings too, which a real service might leave out."""
    return JSONResponse({"detail": str(error)}, 422)


@app.exception_handler(UnknownDestination)
@app.exception_handler(DestinationBusy)
def not_there(_: Request, error: Exception) -> JSONResponse:
    """No such endpoint, or not yet again."""
    return JSONResponse({"detail": str(error)}, 404 if isinstance(error, UnknownDestination) else 409)


@app.post("/orders/{order_id}/payment", status_code=202)
async def pay(order_id: str, amount_cents: int, asking: Customer) -> dict[str, object]:
    """Record a payment, then tell the customer's endpoints. Without any the event is published all the same."""
    if amount_cents <= 0:
        raise HTTPException(422, "nothing to pay")
    paid = OrderPaid(order_id=order_id, amount_cents=amount_cents)
    publication = await publisher.publish(order_paid, paid, id=f"{order_id}-paid", tenant=asking)
    return {"endpoints": [receipt.destination for receipt in publication.receipts]}
