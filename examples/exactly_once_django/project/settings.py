"""A project with one application that books payments, and hookline's inbox in the same database."""

import os
from pathlib import Path

SECRET_KEY = os.environ["DJANGO_SECRET_KEY"]
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
INSTALLED_APPS = ["hookline_receiver.django", "orders"]
MIDDLEWARE = ["django.middleware.common.CommonMiddleware", "django.middleware.csrf.CsrfViewMiddleware"]
ROOT_URLCONF = "project.urls"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",  # in production "django.db.backends.postgresql"
        "NAME": os.environ.get("SHOP_DATABASE", Path(__file__).parent.parent / "shop.sqlite3"),
    },
}
USE_TZ = True

HOOKLINE_INBOX_RETENTION = 14 * 86_400.0  # seconds; longer than the sender retries and redrives
