"""A Django project in this process, with databases that come and go."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import django
from django.conf import settings
from django.core.management import call_command
from django.db import connections

from tests.support_sql import EFFECTS, INBOX, METADATA, Hold, Shop, shop_of

if TYPE_CHECKING:
    from collections.abc import Generator

    import pytest

    from hookline_receiver import Delivery

DJANGO = ("django sqlite", "django postgresql")

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=["hookline_receiver.django"],
    SECRET_KEY="of tests",
    USE_TZ=True,
)
django.setup()

from hookline_receiver.django import DjangoLedger  # noqa: E402 - Django is set up first


@dataclass
class DjangoShop(Shop):
    """One database of a Django project. Handlers write with its connection."""

    alias: str = "default"

    def ledger(self, **options: Any) -> Any:
        """A ledger on the shop's database."""
        return DjangoLedger(using=self.alias, **options)

    def _sync_handler(self, scripts: list[list[Any]]) -> Any:
        def paid(event: Any, delivery: Delivery) -> Any:
            with delivery.session.cursor() as cursor:
                cursor.execute(f"INSERT INTO {EFFECTS.name} VALUES (%s)", [event.data.id])  # noqa: S608 - a constant
                for step in scripts.pop(0) if scripts else []:
                    if isinstance(step, str):
                        cursor.execute(step)
                    elif isinstance(step, Hold):
                        step.wait()
                    elif isinstance(step, BaseException):
                        raise step
                    else:
                        return step
            return None

        return paid


@contextlib.contextmanager
def django_shop(kind: str, request: pytest.FixtureRequest) -> Generator[DjangoShop]:
    """A shop whose inbox was made by Django's migration."""
    driver = {"django sqlite": "sqlite", "django postgresql": "postgresql+psycopg"}[kind]
    with shop_of(driver, request) as shop, database(shop) as alias:
        METADATA.drop_all(shop.observer, [INBOX])
        call_command("migrate", database=alias, verbosity=0)
        yield DjangoShop(shop.address, shop.engine, shop.observer, alias)


@contextlib.contextmanager
def database(shop: Shop) -> Generator[str]:
    """The alias of a shop's database, while the block runs."""
    alias = added(shop.address)
    try:
        yield alias
    finally:
        connections[alias].close()
        del connections[alias], connections.settings[alias]


def added(address: str) -> str:
    """The alias of one more database; `address` as a Shop has it."""
    alias = f"db_{os.urandom(6).hex()}"
    connections.settings[alias] = {**connections.settings["default"], **_place(address)}
    return alias


def _place(address: str) -> dict[str, Any]:
    if address.startswith("///"):
        return {"NAME": address.removeprefix("///")}
    url = urlsplit(f"postgresql:{address}")
    host = parse_qs(url.query).get("host", [url.hostname or ""])[0]
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": url.path.strip("/"),
        "USER": url.username or "",
        "HOST": host,
        "PORT": str(url.port or parse_qs(url.query).get("port", [""])[0]),
    }
