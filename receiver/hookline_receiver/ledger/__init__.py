"""Where a receiver remembers what it handled."""
