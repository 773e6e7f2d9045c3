"""A PostgreSQL server of the tests' own, on a unix socket in a private directory, and a new database for each test.

One shell is started, as hookline_sender.embedded does for Redis: it leaves a guard that reads a pipe whose other end is
ours, and becomes the server. When this process ends in any way, the guard kills the server and removes the directory.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psycopg
import pytest

from tests.support import HANG

if TYPE_CHECKING:
    from collections.abc import Iterator

USER = "postgres"  # root may not run the server
SETTINGS = {
    "listen_addresses": "",
    "max_connections": "50",
    "shared_buffers": "16MB",
    "fsync": "off",  # processes are killed here, machines are not
    "full_page_writes": "off",
    "autovacuum": "off",
    "log_min_messages": "fatal",
}
GUARD = """
exec 3<&0
( read -r _ <&3 || { kill -9 $$; PATH=/usr/bin:/bin rm -rf -- "$0"; } ) &
exec "$@" </dev/null 3<&-
"""


def postgres_binaries() -> Path:
    """The directory of `postgres` and `initdb`; skips without, or fails where HOOKLINE_REQUIRE_LEGS=1 asks for all."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    found = shutil.which("postgres") or (str(installed[-1]) if installed else None)
    if found is not None:
        return Path(found).parent
    give_up = pytest.fail if os.environ.get("HOOKLINE_REQUIRE_LEGS") == "1" else pytest.skip
    return give_up("no PostgreSQL server on this machine")


@dataclass
class PostgresServer:
    """A running server; `directory` has its socket. A context manager that stops it."""

    directory: Path
    command: tuple[str, ...]
    process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(cls, **settings: str) -> PostgresServer:
        """Make a cluster and start it. `settings` are those of postgresql.conf."""
        binaries, directory = postgres_binaries(), Path(tempfile.mkdtemp(prefix="hookline-pg-"))
        try:
            if os.geteuid() == 0:
                shutil.chown(directory, USER, USER)
            init = [str(binaries / "initdb"), "-D", str(directory / "d"), "-U", USER, "-A", "trust", "-E", "UTF8"]
            subprocess.run([*init, "--no-sync", "--locale=C"], **_as_user(), check=True, capture_output=True, cwd="/")
            told = {**SETTINGS, "unix_socket_directories": str(directory), **settings}
            options = [word for name, value in told.items() for word in ("-c", f"{name}={value}")]
            server = cls(directory, (str(binaries / "postgres"), "-D", str(directory / "d"), *options))
            server.restart()
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        return server

    def restart(self) -> None:
        """Start it on what is there, after `kill`."""
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                ("/bin/sh", "-c", GUARD, str(self.directory), *self.command),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                start_new_session=True,
                **_as_user(),
            )
        end = time.monotonic() + HANG
        while True:
            try:
                self.execute("SELECT 1")
            except psycopg.OperationalError:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise
                time.sleep(0.02)
            else:
                return

    def kill(self) -> None:
        """End it at once with all its connections, as a crash would."""
        self._end(signal.SIGQUIT)

    def stop(self) -> None:
        """End it and remove the directory."""
        if self.process is not None:
            self._end(signal.SIGQUIT)
        shutil.rmtree(self.directory, ignore_errors=True)

    def execute(self, statement: str, *parameters: Any, database: str = "postgres") -> list[tuple[Any, ...]]:
        """The rows of one statement, in autocommit."""
        address = f"host={self.directory} user={USER} dbname={database}"
        with contextlib.closing(psycopg.connect(address, autocommit=True)) as connection:
            cursor = connection.execute(statement.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []

    @contextlib.contextmanager
    def database(self) -> Iterator[Database]:
        """A new, empty database."""
        name = f"t_{secrets.token_hex(6)}"
        self.execute(f"CREATE DATABASE {name}")
        try:
            yield Database(self, name)
        finally:
            if self.process is not None:
                self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _end(self, number: signal.Signals) -> None:
        process, self.process = self.process, None
        assert process is not None
        assert process.stdin is not None
        process.send_signal(number)
        process.wait(HANG)
        with contextlib.suppress(BrokenPipeError), process.stdin as guard:
            guard.write(b"\n")  # a line, and not end-of-file: the guard goes without killing anybody


@dataclass(frozen=True)
class Database:
    """One database of a server."""

    server: PostgresServer
    name: str

    def url(self, driver: str) -> str:
        """SQLAlchemy's address of it: `driver` is asyncpg or psycopg."""
        return f"postgresql+{driver}://{USER}@/{self.name}?host={self.server.directory}"

    def execute(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """The rows of one statement, in autocommit."""
        return self.server.execute(statement, *parameters, database=self.name)

    def empty(self) -> None:
        """Drop all tables, and end whoever is still connected."""
        others = "pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        self.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM {others}")  # noqa: S608 - a constant
        self.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")


def _as_user() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    return {"user": USER, "group": pwd.getpwnam(USER).pw_gid, "extra_groups": ()}
