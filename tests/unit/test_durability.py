from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline_shared import durability_faults, durability_fix

CONFIG = {
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    "maxmemory-policy": "noeviction",
}
INFO = {
    "role": "master",
    "aof_enabled": "1",
    "aof_last_write_status": "ok",
    "cluster_enabled": "0",
    "connected_slaves": "1",
}


def test_a_durable_server_has_no_faults_and_needs_no_fix() -> None:
    assert durability_faults(CONFIG, INFO, min_replicas=1) == ()
    assert durability_fix(()) == ""


@pytest.mark.parametrize(
    ("setting", "value", "fault"),
    [
        ("appendonly", "no", "appendonly=no (need yes)"),
        ("appendfsync", "everysec", "appendfsync=everysec (need always)"),
        ("no-appendfsync-on-rewrite", "yes", "no-appendfsync-on-rewrite=yes (need no)"),
        ("maxmemory-policy", "allkeys-lru", "maxmemory-policy=allkeys-lru (need noeviction)"),
    ],
)
def test_a_weak_setting_is_a_fault_with_a_line_to_paste(setting: str, value: str, fault: str) -> None:
    assert durability_faults(CONFIG | {setting: value}, INFO) == (fault,)
    fix = durability_fix((fault,))
    assert f"CONFIG SET {setting} {CONFIG[setting]}" in fix
    assert f"  {setting} {CONFIG[setting]}" in fix.splitlines()


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("role", "slave", "role=slave (need master)"),
        ("aof_enabled", "0", "aof_enabled=0 (need 1)"),
        ("aof_last_write_status", "err", "aof_last_write_status=err (need ok)"),
        ("cluster_enabled", "1", "cluster_enabled=1 (need 0)"),
    ],
)
def test_a_state_that_may_lose_writes_is_a_fault_with_advice(name: str, value: str, fault: str) -> None:
    assert durability_faults(CONFIG, INFO | {name: value}) == (fault,)
    assert "CONFIG SET" not in durability_fix((fault,))
    assert durability_fix((fault,)) != ""


def test_every_setting_that_the_server_hides_is_a_fault() -> None:
    faults = durability_faults({}, {}, min_replicas=1)
    assert len(faults) == 9
    assert all("=unknown (need " in fault for fault in faults)


@pytest.mark.parametrize("connected", ["0", "1", "-5", "many", "9" * 5000, "²", ""])
def test_replicas_are_counted_only_when_asked_for(connected: str) -> None:
    info = INFO | {"connected_slaves": connected}
    assert durability_faults(CONFIG, info) == ()
    assert len(durability_faults(CONFIG, info, min_replicas=2)) == 1


def test_answers_of_any_client_are_understood() -> None:
    config = {name: value.encode() for name, value in CONFIG.items()}
    assert durability_faults(config, INFO | {"aof_enabled": 1, "cluster_enabled": 0, "connected_slaves": 2}) == ()


def test_all_weak_settings_are_set_by_one_command() -> None:
    fix = durability_fix(durability_faults({}, INFO))
    assert fix.count("CONFIG SET") == 1
    assert fix.splitlines()[1:] == ["redis.conf:", *(f"  {name} {value}" for name, value in CONFIG.items())]


VALUES = st.dictionaries(st.sampled_from([*CONFIG, *INFO]), st.one_of(st.text(), st.binary(), st.integers()))


@given(VALUES, VALUES, st.integers(0, 3))
def test_the_verdict_is_total(config: dict[str, object], info: dict[str, object], replicas: int) -> None:
    faults = durability_faults(config, info, min_replicas=replicas)
    assert bool(durability_fix(faults)) is bool(faults)


@pytest.mark.parametrize(
    ("version", "old"), [("6.2.14", True), ("2.8", True), ("7.0.15", False), ("8.1.0", False), ("x", False)]
)
def test_a_server_that_is_too_old_for_the_scripts_is_a_fault(version: str, old: bool) -> None:  # noqa: FBT001
    faults = durability_faults(CONFIG, INFO | {"redis_version": version})
    assert faults == ((f"redis_version={version} (need 7.0 or newer)",) if old else ())
    assert ("Valkey 7.2 or newer" in durability_fix(faults)) is old
