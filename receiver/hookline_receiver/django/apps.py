"""The Django application."""

from __future__ import annotations

from django.apps import AppConfig


class HooklineInbox(AppConfig):
    """The inbox's table and its migration."""

    name = "hookline_receiver.django"
    label = "hookline_inbox"
    verbose_name = "hookline inbox"
