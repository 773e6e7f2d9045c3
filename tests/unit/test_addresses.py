"""Which addresses and ports a connection may go to."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline_sender import InvalidDeployment
from hookline_sender.egress import AddressPolicy
from hookline_sender.egress.addresses import REMEMBERED, is_address

PUBLIC = AddressPolicy()
EVERYTHING = AddressPolicy(("0.0.0.0/0", "::/0"), unsafe_allow_private_addresses=True, allow_loopback_http=True)

PUBLIC_ADDRESSES = [
    "1.1.1.1", "8.8.8.8", "93.184.215.14", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "192.0.1.1",
    "198.17.0.1", "198.20.0.1", "168.63.129.15", "223.255.255.255", "2606:4700:4700::1111", "2a00:1450:4001:82f::200e",
    "2400:cb00::1", "2003::1", "::ffff:1.1.1.1", "::ffff:101:101", "64:ff9b::1.1.1.1", "64:ff9b::808:808",
]  # fmt: skip
METADATA = [
    "169.254.0.1", "169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192", "fe80::1", "fe81::1",
    "febf::1", "fd00:ec2::254", "fd20:ce::254", "::ffff:169.254.169.254", "::ffff:a9fe:a9fe", "::ffff:168.63.129.16",
    "64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "2002:a9fe:a9fe::1", "::169.254.169.254", "2001:0:1::5601:5601",
]  # fmt: skip
NOT_PUBLIC = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.254", "172.16.0.1",  # noqa: S104
    "172.31.255.255", "192.0.0.1", "192.0.0.9", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.0.1",
    "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::2", "::127.0.0.1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:10.0.0.1",
    "::ffff:100.64.0.1", "::ffff:0:127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b::192.88.99.1",
    "64:ff9b:1::1", "64:ff9b:1::8.8.8.8", "100::1", "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:2::1",
    "2001:10::1", "2001:20::1", "2001:1ff::1", "2001:db8::1", "2002:7f00:1::1", "2002:808:808::1", "2620:4f:8000::1",
    "3fff::1", "3fff:fff::1", "4000::1", "5f00::1", "fc00::1", "fd12:3456::1", "fec0::1", "ff02::1", "ff0e::1",
]  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC_ADDRESSES)
def test_a_public_address_is_allowed(address: str) -> None:
    assert PUBLIC.allows(address)


@pytest.mark.parametrize("address", [*NOT_PUBLIC, *METADATA])
def test_an_address_that_is_not_public_is_refused(address: str) -> None:  # cases: A58
    assert not PUBLIC.allows(address)


@pytest.mark.parametrize("address", METADATA)
def test_link_local_and_metadata_addresses_are_in_no_wider_permission(address: str) -> None:
    assert not EVERYTHING.allows(address)


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_other_addresses_are_allowed_by_the_unsafe_switch(address: str) -> None:
    assert AddressPolicy(unsafe_allow_private_addresses=True).allows(address)


def test_a_network_that_is_named_is_allowed_and_nothing_beside_it() -> None:
    policy = AddressPolicy(("10.1.0.0/16", "fd12::/16", "192.168.7.7"))
    assert [policy.allows(each) for each in ("10.1.2.3", "::ffff:10.1.2.3", "fd12::1", "192.168.7.7")] == [True] * 4
    assert [policy.allows(each) for each in ("10.2.0.1", "fd13::1", "192.168.7.8", "127.0.0.1", "::1")] == [False] * 5


@pytest.mark.parametrize(
    ("network", "inside", "beside"),
    [
        ("169.254.7.0/24", "169.254.7.1", "169.254.169.254"),
        ("169.254.0.0/16", "169.254.169.254", "168.63.129.16"),
        ("fe80::/10", "fe80::1", "fd00:ec2::254"),
        ("168.63.129.16", "168.63.129.16", "169.254.169.254"),
        ("::ffff:0:0:0/96", "::ffff:0:127.0.0.1", "::127.0.0.1"),
    ],
)
def test_a_guarded_range_is_opened_by_its_own_name_only(network: str, inside: str, beside: str) -> None:
    policy = AddressPolicy((network,))
    assert (policy.allows(inside), policy.allows(beside)) == (True, False)


def test_a_permission_for_ipv4_does_not_reach_through_tunnels() -> None:
    policy = AddressPolicy(("10.0.0.0/8", "169.254.169.254/32"))
    tunnels = ("64:ff9b::10.0.0.1", "2002:a00:1::1", "::10.0.0.1", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1")
    assert [each for each in tunnels if policy.allows(each)] == []


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_loopback_is_allowed_by_its_switch(address: str) -> None:
    assert AddressPolicy(allow_loopback_http=True).allows(address)
    assert not AddressPolicy(allow_loopback_http=True).allows("10.0.0.1")


@pytest.mark.parametrize(
    "text", ["", "localhost", "shop.example", "127.1", "0177.0.0.1", "2606:4700::1%eth0", "1.1.1.1 "]
)
def test_what_is_no_address_or_has_a_scope_is_not_allowed(text: str) -> None:  # cases: A57
    assert not EVERYTHING.allows(text)


def test_verdicts_are_remembered_for_so_many_addresses_and_stay_what_they_were() -> None:
    policy = AddressPolicy(("10.1.0.0/16",))
    asked = [f"10.{number % 3}.{number // 256}.{number % 256}" for number in range(3 * REMEMBERED)]
    for _ in range(2):
        assert [address for address in asked if policy.allows(address) != address.startswith("10.1.")] == []
        assert 0 < len(policy._judged) <= REMEMBERED


@pytest.mark.parametrize("ports", [None, frozenset({22, 443})])
def test_ports_are_all_but_those_of_other_protocols_or_those_that_are_named(ports: frozenset[int] | None) -> None:
    policy = AddressPolicy(ports=ports)
    assert policy.allows_port(443)
    assert [policy.allows_port(each) for each in (22, 25, 8443)] == (
        [False, False, True] if ports is None else [True, False, False]
    )


@pytest.mark.parametrize(
    "wrong",
    ["10.0.0.0/8", ("10.0.0.1/8",), ("shop.example",), ("",), (7,), ("::ffff:10.0.0.0/104",), ("fe80::1%eth0",)],
)
def test_what_is_no_network_is_refused(wrong: tuple[str, ...]) -> None:
    with pytest.raises(InvalidDeployment, match="allow_addresses"):
        AddressPolicy(wrong)


@pytest.mark.parametrize("wrong", [frozenset(), {0}, {65_536}, {"443"}, {True}, {443, 0}])
def test_what_is_no_port_is_refused(wrong: frozenset[int]) -> None:
    with pytest.raises(InvalidDeployment, match="destination_ports"):
        AddressPolicy(ports=wrong)


@given(st.ip_addresses())
def test_an_allowed_address_is_global_in_the_tables_of_python_too(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    assert address.is_global or not PUBLIC.allows(str(address)) or address in ipaddress.ip_network("64:ff9b::/96")


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_judged_alike_in_every_spelling(address: ipaddress.IPv4Address) -> None:
    spellings = [f"::ffff:{address}", f"64:ff9b::{address}"]
    assert [PUBLIC.allows(each) for each in spellings] == [PUBLIC.allows(str(address))] * 2


@given(st.text(max_size=20) | st.ip_addresses().map(str))
def test_any_text_is_judged_without_an_error(text: str) -> None:
    assert not PUBLIC.allows(text) or is_address(text)
