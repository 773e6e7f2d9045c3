"""A payload is as deep as its receivers read, or refused before it is sent."""

from __future__ import annotations

import pytest

from hookline_shared import EventType, InvalidEvent, decode_event, encode_event
from tests.support_receiver import Anything


@pytest.mark.parametrize("depth", range(190, 260, 3))
def test_a_payload_is_refused_or_read_however_deep_it_is(depth: int) -> None:  # cases: A71
    payload = Anything.model_construct(deep=nested(depth))
    for event_type in (EventType("anything", Anything), EventType("anything", Anything, body="payload")):
        try:
            body = encode_event(event_type, payload, event_id="evt_1", occurred_at="2026-01-01T00:00:00.000Z")
        except InvalidEvent as refused:
            assert refused.reason == "not_serialisable"  # noqa: PT017 - either is fine
            assert depth > 195
        else:
            assert decode_event(event_type, body).data.model_extra == {"deep": nested(depth)}


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value
