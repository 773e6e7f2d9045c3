"""How a publication's envelope and trace lie in Redis: compact, and its body never parsed by a script."""

from __future__ import annotations

_LENGTH = 2  # bytes before each text


def pack_envelope(texts: tuple[str, ...], body: bytes) -> bytes:
    """Length-prefixed texts, then the body to the end."""
    parts = [text.encode() for text in texts]
    return b"".join(len(part).to_bytes(_LENGTH, "big") + part for part in parts) + body


def unpack_envelope(raw: bytes, count: int = 4) -> tuple[tuple[str, ...], bytes]:
    """The texts and the body of `pack_envelope`. Raises ValueError when somebody else wrote over it."""
    texts: list[str] = []
    at = 0
    for _ in range(count):
        start = at + _LENGTH
        at = start + int.from_bytes(raw[at:start], "big")
        if at > len(raw):
            raise ValueError("not an envelope")
        texts.append(raw[start:at].decode())
    return tuple(texts), raw[at:]


def pack_trace(traceparent: str) -> bytes:
    """25 bytes for a W3C traceparent of version 00, none for an empty one."""
    return bytes.fromhex(traceparent[3:].replace("-", ""))


def unpack_trace(raw: bytes) -> str:
    """The traceparent of `pack_trace`."""
    text = raw.hex()
    return f"00-{text[:32]}-{text[32:48]}-{text[48:]}" if raw else ""
