"""What the shop owes and is owed."""

from django.db import models


class Account(models.Model):
    """A customer's balance."""

    customer = models.CharField(max_length=64, primary_key=True)
    balance_cents = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.customer}: {self.balance_cents}"
