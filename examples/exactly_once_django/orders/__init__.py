"""Payments, booked once."""
