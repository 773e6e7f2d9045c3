"""Which errors of database drivers are gone at the next attempt, code by code."""

from __future__ import annotations

import sqlite3

import pytest

from hookline_receiver.ledger.passing import driver_error_passes

PASSING = ("08000", "08006", "40001", "40P01", "53100", "53300", "57P01", "57P05", "25P03", "55P03", "57014")
LASTING = ("00000", "22001", "23505", "25P02", "25006", "28P01", "42P01", "55006", "57000", "57013", "P0001", "XX000")
SQLITE_PASSING = ("BUSY", "BUSY_SNAPSHOT", "LOCKED", "LOCKED_SHAREDCACHE", "IOERR", "IOERR_FSYNC", "FULL", "CANTOPEN")
SQLITE_LASTING = ("ERROR", "PERM", "ABORT", "NOMEM", "READONLY", "CORRUPT", "CONSTRAINT_UNIQUE", "MISMATCH", "NOTADB")


class Failed(Exception):
    """An error as a driver raises it."""

    def __init__(self, **codes: object) -> None:
        super().__init__()
        vars(self).update(codes)


@pytest.mark.parametrize("attribute", ["sqlstate", "pgcode"])  # asyncpg and psycopg; psycopg2
@pytest.mark.parametrize(("states", "passes"), [(PASSING, True), (LASTING, False)])
def test_a_state_of_postgresql_passes_or_lasts(attribute: str, states: tuple[str, ...], *, passes: bool) -> None:
    assert [state for state in states if driver_error_passes(Failed(**{attribute: state})) is not passes] == []


@pytest.mark.parametrize(("names", "passes"), [(SQLITE_PASSING, True), (SQLITE_LASTING, False)])
def test_a_code_of_sqlite_passes_or_lasts_extended_or_not(names: tuple[str, ...], *, passes: bool) -> None:
    codes = {name: getattr(sqlite3, f"SQLITE_{name}") for name in names}
    assert [
        name for name, code in codes.items() if driver_error_passes(Failed(sqlite_errorcode=code)) is not passes
    ] == []


@pytest.mark.parametrize("error", [None, ValueError("a bug"), Failed(sqlstate=None, pgcode=None), Failed(sqlstate=40)])
def test_an_error_without_a_known_code_is_neither(error: BaseException | None) -> None:
    assert driver_error_passes(error) is None
