"""Whatever arrives, in whatever pieces: one answer of the table, no exception, and no handler without a signature."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as some

from hookline_receiver import SigningKey
from hookline_receiver.middleware import spells
from tests.support import run
from tests.support_middleware import Endpoint, behind
from tests.support_receiver import KEY, Anything, Pairs, Reply, call, handled_by, receiver, signed

NAMES = [
    *(b"x-axiom-delivery", b"X-Axiom-Timestamp", b"x-axiom-signature", b"x-axiom-attempt", b"x-axiom-event"),
    *(b"traceparent", b"content-length", b"content-encoding", b"content-type", b"transfer-encoding", b"expect"),
]
header = some.tuples(some.sampled_from(NAMES) | some.binary(max_size=30), some.binary(max_size=80))
headers_of_any_kind = some.lists(header, max_size=12)
cuts = some.lists(some.integers(0, 40), min_size=1, max_size=30)


def in_chunks(body: bytes, sizes: list[int]) -> list[int]:
    """The sizes, and what they leave."""
    return [*sizes, max(0, len(body) - sum(sizes))]


@given(headers_of_any_kind, some.binary(max_size=300), cuts)
def test_what_is_not_signed_is_one_of_the_refusals(pairs: Pairs, body: bytes, sizes: list[int]) -> None:
    seen: list[object] = []
    reply = run(call(handled_by(seen.append), pairs, body, chunks=in_chunks(body, sizes)))
    assert reply.status in {401, 413}
    assert seen == []


@given(headers_of_any_kind, some.binary(max_size=300), cuts)
def test_nothing_unsigned_passes_the_middleware(pairs: Pairs, body: bytes, sizes: list[int]) -> None:
    endpoint = Endpoint()
    assert run(call(behind(endpoint), pairs, body, chunks=in_chunks(body, sizes))).status in {401, 413}
    assert endpoint.seen == []


@given(some.binary(max_size=300), headers_of_any_kind, cuts)
def test_a_signed_body_of_any_bytes_is_answered_by_the_table(body: bytes, more: Pairs, sizes: list[int]) -> None:
    headers, body = signed(body)
    reply = run(call(handled_by(lambda event: None), [*headers, *more], body, chunks=in_chunks(body, sizes)))
    assert reply.status in {204, 401, 413, 415, 422}


@given(some.recursive(some.none() | some.booleans() | some.floats() | some.text(), some.lists, max_leaves=5), cuts)
def test_a_signed_event_is_handled_however_it_is_cut(value: Any, sizes: list[int]) -> None:
    async def go() -> Reply:
        body = b'{"type":"order.paid","data":%b}' % Anything.model_validate({"value": value}).model_dump_json().encode()
        return await call(made, *signed(body), chunks=in_chunks(body, sizes))

    made = receiver()
    made.on("order.paid", Anything)(lambda event: None)
    assert run(go()).status == 204


@given(some.integers(0, 2**16), some.integers(0, 7), some.sampled_from(["body", "delivery", "timestamp", "signature"]))
def test_one_flipped_bit_reaches_no_handler(place: int, bit: int, part: str) -> None:
    seen: list[object] = []
    pairs, body = signed(delivery_id="dlv_1")
    head = dict(pairs)
    name = f"x-axiom-{part}".encode()
    flipped = bytearray(body if part == "body" else head[name])
    flipped[place % len(flipped)] ^= 1 << bit
    if part == "body":
        body = bytes(flipped)
    else:
        head[name] = bytes(flipped)
    assert run(call(handled_by(seen.append), list(head.items()), body)).status == 401
    assert seen == []


@given(some.lists(some.binary(min_size=32, max_size=70), min_size=1, max_size=5), some.integers(0, 4))
def test_only_the_keys_it_has_open_a_receiver(materials: list[bytes], chosen: int) -> None:
    keys = [SigningKey(material) for material in materials]
    request = signed(key=keys[chosen % len(keys)])
    assert run(call(handled_by(lambda event: None, keys=keys), *request)).status == 204
    assert run(call(handled_by(lambda event: None, keys=KEY), *request)).status == (204 if KEY in keys else 401)


@given(some.text(max_size=200), some.text(max_size=20))
def test_any_path_is_ours_or_not(path: str, root_path: str) -> None:
    assert spells(path, "/hooks/shop", root_path) in {True, False}
    assert spells(root_path + "/hooks/shop", "/hooks/shop", root_path)
