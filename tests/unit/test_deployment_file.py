"""What a deployment's file says, what of it is refused, and that no refusal shows a value."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

from hookline_sender import Deployment, DestinationRef, InvalidDeployment
from hookline_sender.deployment_file import KINDS

if TYPE_CHECKING:
    from pathlib import Path

REDIS = {"HOOKLINE_REDIS_URL": "redis://:hush@redis.internal:6379/3"}
EVERYTHING = """
redis_url_env = "SHOP_REDIS"
namespace = "shop"
grants = ["publish:order.*", "cancel:webhook:billing"]
lease = 12
retention = 3_600.5
dead_retention = 7200
ledger_horizon = 86400
max_records = 1_000_000
max_per_destination = 50_000
max_dead = 10
durability = "asserted"
min_replicas = 1
key_encryption_key_env = "SHOP_SEAL"
allow_addresses = ["10.1.0.0/16"]
unsafe_allow_private_addresses = false
destination_ports = [443, 8443]
allow_loopback_http = true

[destinations.billing]
url_env = "BILLING_URL"
signing_key_env = "BILLING_KEY"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "deployment.toml"


def refusal(file: Path, text: str, environ: dict[str, str] = REDIS) -> str:
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidDeployment) as caught:
        Deployment.from_file(file, environ)
    said = str(caught.value)
    assert said.startswith(f"{file}: ")
    assert "hush" not in said
    return said


def test_a_file_says_all_that_a_deployment_has(file: Path) -> None:
    file.write_text(EVERYTHING, encoding="utf-8")
    assert Deployment.from_file(file, {"SHOP_REDIS": "redis://one"} | REDIS) == Deployment(
        "redis://one",
        namespace="shop",
        destinations={"billing": DestinationRef("BILLING_URL", "BILLING_KEY")},
        grants=frozenset({"publish:order.*", "cancel:webhook:billing"}),
        lease=12,
        retention=3600.5,
        dead_retention=7200,
        ledger_horizon=86_400,
        max_records=1_000_000,
        max_per_destination=50_000,
        max_dead=10,
        durability="asserted",
        min_replicas=1,
        key_encryption_key_env="SHOP_SEAL",
        allow_addresses=("10.1.0.0/16",),
        destination_ports=frozenset({443, 8443}),
        allow_loopback_http=True,
    )


def test_every_argument_of_a_deployment_is_a_key() -> None:
    assert KINDS.keys() - {"redis_url_env"} == {each.name for each in fields(Deployment) if each.init}


def test_a_short_file_has_the_defaults_and_only_redis_from_the_environment(file: Path) -> None:
    file.write_text('namespace = "shop"', encoding="utf-8")
    environ = REDIS | {"HOOKLINE_GRANTS": "*", "HOOKLINE_NAMESPACE": "other", "HOOKLINE_MAX_RECORDS": "7"}
    assert Deployment.from_file(str(file), environ) == Deployment(REDIS["HOOKLINE_REDIS_URL"], namespace="shop")


@pytest.mark.parametrize("key", sorted(KINDS))
@pytest.mark.parametrize("value", ['{ billing = "hush" }', "2030-01-31", '[["hush"]]'])
def test_a_value_of_another_type_is_refused_by_its_key(file: Path, key: str, value: str) -> None:
    rest = "" if key == "namespace" else 'namespace = "shop"'
    said = refusal(file, f"{key} = {value}\n{rest}")
    assert f": {key} has to be " in said or (key == "destinations" and "destinations.billing is a table" in said)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('lease = "30"', "lease has to be a number"),
        ("lease = true", "lease has to be a number"),
        ("lease = 700", "lease=700 is outside"),
        ("lease = nan", "lease=nan is outside"),
        ("max_records = 1e5", "max_records has to be a whole number"),
        ("max_dead = true", "max_dead has to be a whole number"),
        ("allow_loopback_http = 1", "allow_loopback_http has to be true or false"),
        ('grants = "publish:order.paid"', "grants has to be a list of texts"),
        ('grants = ["publish"]', "'publish' is no grant"),
        ("destination_ports = [true]", "destination_ports has to be a list of whole numbers"),
        ("destination_ports = []", "destination_ports"),
        ('durability = "maybe"', "durability"),
        ('max_record = "hush"', "max_record is no setting, did you mean max_records?"),
        ('xyz = "hush"', "xyz is no setting"),
        ("namespace = 7", "not TOML"),
        ('redis_url = "hush://"', "redis_url"),
        ('redis_url_env = "redis://:hush@h"', "redis_url_env is the name of an environment variable"),
        ('redis_url_env = "NOWHERE"', "NOWHERE is not set"),
        ('redis_url = "redis://h"\nredis_url_env = "A"', "redis_url and redis_url_env"),
        ('[destinations]\nbilling = "https://hush"', "destinations.billing is a table"),
        ('[destinations.billing]\nurl_env = "A"', "destinations.billing lacks signing_key_env"),
        (
            '[destinations.billing]\nurl = "https://hush"',
            "destinations.billing.url is no setting, did you mean url_env",
        ),
        ("[destinations.billing]\nurl_env = 5", "destinations.billing.url_env has to be text"),
        ('[destinations.b]\nurl_env = "https://hush"\nsigning_key_env = "K"', "destinations.b: url_env and"),
        ("lease = ", "not TOML"),
    ],
)
def test_a_wrong_file_is_refused_by_its_name_and_key(file: Path, line: str, named: str) -> None:
    assert named in refusal(file, f'namespace = "shop"\n{line}\n')


def test_a_file_without_a_namespace_or_redis_says_what_to_add(file: Path) -> None:
    assert 'namespace = "shop"' in refusal(file, "lease = 5")
    assert "HOOKLINE_REDIS_URL" in refusal(file, 'namespace = "shop"', {})


def test_a_file_that_cannot_be_read_is_refused_by_name(file: Path) -> None:
    file.write_bytes(b"\xff\xfe")
    for path in (file, file.with_name("missing.toml"), file.parent):
        with pytest.raises(InvalidDeployment) as caught:
            Deployment.from_file(path, REDIS)
        assert str(caught.value).startswith(f"{path}: the file ")
