"""How property tests run here."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A deadline or a generation speed measures the machine, which other test processes share.
settings.register_profile("hookline", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hookline")
