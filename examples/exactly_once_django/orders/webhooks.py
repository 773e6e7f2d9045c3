"""What happens when the shop tells of a payment.

Run it:  export DJANGO_SECRET_KEY=… SHOP_KEYS=…   (the second from `hookline keygen`, the sender has it too)
         python manage.py migrate && python manage.py runserver 8000
Then POST deliveries to http://127.0.0.1:8000/hooks/shop.
"""

from django.db.models import F
from pydantic import BaseModel

from hookline_receiver import DomainEvent, Receiver, Reject, SigningKey
from hookline_receiver.django import DjangoLedger
from orders.models import Account


class OrderPaid(BaseModel):
    """The event, as the shop declares it."""

    order_id: str
    customer: str
    amount_cents: int


receiver = Receiver("shop-events", keys=SigningKey.all_from_env("SHOP_KEYS"), ledger=DjangoLedger())


@receiver.on("order.paid", OrderPaid)
def paid(event: DomainEvent[OrderPaid]) -> None:
    """Book it. The balance and the inbox's row are one commit: neither a copy nor a crash books it twice."""
    if event.data.amount_cents <= 0:
        raise Reject("a payment is above zero")
    account, _ = Account.objects.get_or_create(customer=event.data.customer)
    Account.objects.filter(pk=account.pk).update(balance_cents=F("balance_cents") + event.data.amount_cents)
