"""What is kept of a registered destination is sealed, and neither errors nor reprs show any of it."""

from __future__ import annotations

import base64
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline_sender import InvalidDeployment
from hookline_sender.sealing import Sealer

OLD, NEW = "hex:" + "ab" * 32, "hex:" + "cd" * 32
CONTENT = b'{"url":"https://shop.example/hook?token=hush"}'


def sealer(text: str = OLD) -> Sealer:
    return Sealer.parse(text, source="KEK")


def seal(text: str = OLD) -> bytes:
    return sealer(text).seal(CONTENT, namespace="shop", destination="acme")


@given(st.binary(max_size=300), st.text(max_size=20), st.text(max_size=20))
def test_what_was_sealed_opens_again(content: bytes, namespace: str, destination: str) -> None:
    sealed = sealer().seal(content, namespace=namespace, destination=destination)
    assert sealer().open(sealed, namespace=namespace, destination=destination) == content


def test_a_sealed_text_shows_nothing_and_is_never_the_same_twice() -> None:
    assert b"hush" not in seal()
    assert seal() != seal()


def test_hex_and_base64_spell_the_same_key() -> None:
    spelled = "base64:" + base64.b64encode(bytes.fromhex("ab" * 32)).decode()
    assert sealer(spelled).open(seal(), namespace="shop", destination="acme") == CONTENT


def test_older_keys_still_open_and_only_the_newest_seals() -> None:
    both = sealer(f"{NEW} {OLD}")
    assert both.open(seal(OLD), namespace="shop", destination="acme") == CONTENT
    resealed = both.seal(CONTENT, namespace="shop", destination="acme")
    assert sealer(NEW).open(resealed, namespace="shop", destination="acme") == CONTENT
    with pytest.raises(InvalidDeployment, match="put the older key back"):
        sealer(OLD).open(resealed, namespace="shop", destination="acme")


@pytest.mark.parametrize(("namespace", "destination"), [("other", "acme"), ("shop", "other"), ("shopa", "cme")])
def test_what_was_sealed_for_one_destination_opens_for_no_other(namespace: str, destination: str) -> None:
    with pytest.raises(InvalidDeployment, match="belongs to another"):
        sealer().open(seal(), namespace=namespace, destination=destination)


@given(st.data())
def test_any_changed_bit_is_noticed(data: st.DataObject) -> None:
    sealed = bytearray(seal())
    sealed[data.draw(st.integers(0, len(sealed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(InvalidDeployment):
        sealer().open(bytes(sealed), namespace="shop", destination="acme")


@given(st.binary(max_size=60))
def test_opening_is_total(noise: bytes) -> None:
    with pytest.raises(InvalidDeployment) as caught:
        sealer().open(b"\x01" + seal()[1:9] + noise, namespace="shop", destination="acme")
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "text",
    [
        "hush" * 16,
        "hex:hush",
        "hex:" + "ab" * 31,
        "hex:" + "ab" * 33,
        "base64:hush",
        "base64:" + "aHVz" * 8,
        f"{OLD} hush",
        f"{OLD},{NEW}",
        "hex:" + "٣" * 64,
    ],
)
def test_what_is_no_key_is_refused_and_never_shown(text: str) -> None:
    with pytest.raises(InvalidDeployment, match=r"^KEK holds something that is no key: .*`hookline keygen`") as caught:
        sealer(text)
    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_more_keys_than_are_read_are_refused() -> None:
    with pytest.raises(InvalidDeployment, match="KEK holds 17 keys, at most 16"):
        sealer(" ".join(f"hex:{number:064x}" for number in range(17)))


@pytest.mark.parametrize("environ", [{}, {"KEK": ""}, {"KEK": " \n"}])
def test_a_missing_key_is_named_with_what_to_set(environ: dict[str, str]) -> None:
    with pytest.raises(InvalidDeployment, match=r"^KEK is not set: .* export KEK=\$\(hookline keygen\)$"):
        Sealer.from_env("KEK", environ)


def test_a_sealer_shows_nothing_and_is_not_pickled() -> None:
    assert "ab" not in repr(sealer())
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(sealer())
