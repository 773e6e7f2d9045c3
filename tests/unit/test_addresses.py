"""Which addresses and ports a connection may go to."""

from __future__ import annotations

import pytest

from hookline_sender.egress import AddressPolicy

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
