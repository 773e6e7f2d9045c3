"""A service that books each payment exactly once: the booking and the record of its delivery are one commit.

Run it:  SHOP_KEYS=… uvicorn exactly_once_orders:app
Needs:   in SHOP_KEYS the signing key; ORDERS_DATABASE, like postgresql+asyncpg://…, or else it writes to orders.db
         here; the extra sql and the driver, asyncpg or aiosqlite
"""

import contextlib
import os
from collections.abc import AsyncGenerator

from fastapi import FastAPI
from pydantic import BaseModel
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from starlette.routing import Route

from hookline_receiver import Delivery, DomainEvent, Receiver, Reject, SigningKey, SqlLedger, inbox_table


class OrderPaid(BaseModel):
    """What we need of the event; fields that the shop adds later are ignored."""

    order_id: str
    amount_cents: int


class Base(DeclarativeBase):
    """The service's tables, the inbox among them."""


class Booking(Base):
    """One line in the books. Nothing but the inbox keeps a second one out."""

    __tablename__ = "bookings"

    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[str]
    amount_cents: Mapped[int]


inbox = inbox_table(Base.metadata)
engine = create_async_engine(os.environ.get("ORDERS_DATABASE", "sqlite+aiosqlite:///orders.db"))
receiver = Receiver(
    "shop-events",
    keys=SigningKey.all_from_env("SHOP_KEYS"),
    ledger=SqlLedger(engine, table=inbox),
    handler_deadline=8.0,
)


@receiver.on("order.paid", OrderPaid)
async def paid(event: DomainEvent[OrderPaid], delivery: Delivery[AsyncSession]) -> None:
    """Book one payment. The receiver commits when this returns; whatever it raises rolls back."""
    if event.data.amount_cents < 0:
        raise Reject("a payment is not negative")
    delivery.session.add(Booking(order_id=event.data.order_id, amount_cents=event.data.amount_cents))


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    """Make the tables, which elsewhere a migration does, and open the receiver."""
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with receiver.lifespan(app):
        yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan)
app.router.routes.append(Route("/hooks/shop", receiver))


@app.get("/books")
async def books() -> dict[str, int]:
    """What was booked, in cents by order."""
    total = select(Booking.order_id, func.sum(Booking.amount_cents).label("cents")).group_by(Booking.order_id)
    async with AsyncSession(engine) as session:
        return {row.order_id: row.cents for row in await session.execute(total)}
