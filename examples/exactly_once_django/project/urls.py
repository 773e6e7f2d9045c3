"""One path: where the shop's events arrive."""

from django.urls import path
from orders.webhooks import receiver

from hookline_receiver.django import webhook_view

urlpatterns = [path("hooks/shop", webhook_view(receiver))]
