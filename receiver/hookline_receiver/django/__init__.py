"""Deliveries in a Django project: the ledger in its database, and a view.

    INSTALLED_APPS = [..., "hookline_receiver.django"]        # then: manage.py migrate
    receiver = Receiver("shop-events", keys=..., ledger=DjangoLedger())
    urlpatterns = [path("hooks/shop", webhook_view(receiver))]

Settings, each optional: HOOKLINE_INBOX_USING (a database alias, "default"), HOOKLINE_INBOX_RETENTION (seconds, 604800).
"""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("django") is None:
    message = "hookline_receiver.django needs Django: pip install django"
    raise ImportError(message)

from hookline_receiver.django.ledger import DjangoLedger
from hookline_receiver.django.views import webhook_view

__all__ = ["DjangoLedger", "webhook_view"]
