"""The inbox's table."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Create it."""

    initial = True
    dependencies: ClassVar = []
    operations: ClassVar = [
        migrations.CreateModel(
            name="InboxRow",
            fields=[
                ("key", models.BinaryField(max_length=32, primary_key=True, serialize=False)),
                ("fingerprint", models.BinaryField(max_length=32)),
                ("status", models.PositiveSmallIntegerField()),
                ("recorded_at", models.DateTimeField()),
            ],
            options={
                "verbose_name": "inbox row",
                "db_table": "hookline_inbox",
                "indexes": [models.Index(fields=["recorded_at"], name="hookline_inbox_recorded_at")],
            },
        ),
    ]
