"""The inbox's migrations."""
