"""The inbox's table as a Django model, for migrations and for looking."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from django.db import models

if TYPE_CHECKING:
    from datetime import datetime


class InboxRow(models.Model):
    """One delivery that was handled. Rows are written and deleted by the DjangoLedger, and by nobody else."""

    key: models.BinaryField[bytes, bytes] = models.BinaryField(primary_key=True, max_length=32)
    fingerprint: models.BinaryField[bytes, bytes] = models.BinaryField(max_length=32)
    status: models.PositiveSmallIntegerField[int, int] = models.PositiveSmallIntegerField()
    recorded_at: models.DateTimeField[datetime, datetime] = models.DateTimeField()

    class Meta:
        """What the columns cannot say."""

        db_table = "hookline_inbox"
        indexes: ClassVar = [models.Index(fields=["recorded_at"], name="hookline_inbox_recorded_at")]
        verbose_name = "inbox row"

    def __str__(self) -> str:
        return f"{bytes(self.key).hex()[:16]} {self.status}"
