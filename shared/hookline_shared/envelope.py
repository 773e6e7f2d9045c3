"""The JSON object around a payload, read strictly; what is wrong with one is said without quoting it."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar, cast

from pydantic import BaseModel, StrictInt, ValidationError
from pydantic_core import from_json

from hookline_shared.errors import InvalidEvent

B = TypeVar("B", bound=BaseModel)

_SHOWN = 3  # faults named in one error


class Named(BaseModel):
    """The one thing every event has."""

    type: str


class Head(Named):
    """What stands beside the payload; only `type` is required on receipt."""

    event_id: str | None = None
    schema_version: str | None = None
    occurred_at: str | None = None
    aggregate_id: str | None = None
    aggregate_revision: StrictInt | None = None
    causation_id: str | None = None
    correlation_id: str | None = None

    def fields(self) -> dict[str, Any]:
        """The head's fields by name."""
        return {name: getattr(self, name) for name in Head.model_fields}


class Envelope(Head, Generic[B]):
    """An event that carries its payload."""

    data: B


class Reference(Head):
    """An event whose payload is elsewhere."""

    data_ref: str


ENVELOPE_NAMES: Final = frozenset({*Head.model_fields, "data", "data_ref"})


def envelope_of(model: type[B]) -> type[Envelope[B]]:
    """The envelope whose `data` is a `model`."""
    return cast("type[Envelope[B]]", _envelope_of(model))


@lru_cache(maxsize=1024)
def _envelope_of(model: type[BaseModel]) -> object:
    return Envelope.__class_getitem__(model)  # kept: pydantic holds it weakly, and building one takes a millisecond


def validated(model: type[B], body: bytes, *, event: str, payload: type[BaseModel]) -> B:
    """The `model` in `body`. Raises InvalidEvent, `not_json` or `not_the_model`, naming `event` and declared fields."""
    if not _is_json(body):
        raise _not_json(event)
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        invalid = _invalid(error, event, payload, bare=model is payload)
    raise invalid  # not inside: the cause quotes the payload


def _is_json(body: bytes) -> bool:
    """Whether `body` has none of the constants that RFC 8259 lacks but pydantic's parser takes for a float."""
    if b"NaN" in body or b"Infinity" in body:
        with suppress(ValueError):
            from_json(body, allow_inf_nan=False)
            return True
        return False
    return True


def _not_json(event: str) -> InvalidEvent:
    return InvalidEvent(f'the body is not JSON; "{event}" was expected', reason="not_json")


def _invalid(error: ValidationError, event: str, payload: type[BaseModel], *, bare: bool) -> InvalidEvent:
    details = error.errors(include_url=False, include_context=False, include_input=False)
    if details[0]["type"] == "json_invalid":
        return _not_json(event)
    shown = [f"{_place(detail['loc'], payload, bare=bare)} ({detail['type']})" for detail in details[:_SHOWN]]
    more = f" and {len(details) - _SHOWN} more" if len(details) > _SHOWN else ""
    return InvalidEvent(f'the body is not "{event}": {", ".join(shown)}{more}', reason="not_the_model")


def _place(location: tuple[int | str, ...], payload: type[BaseModel], *, bare: bool) -> str:
    """The field that is wrong, at most one level into the payload: deeper parts can be the sender's own text."""
    if not bare:
        if location[:1] != ("data",):
            return str(location[0]) if location and location[0] in ENVELOPE_NAMES else "body"
        location = location[1:]
    prefix = "body" if bare else "data"
    return f"{prefix}.{location[0]}" if location and location[0] in _declared(payload) else prefix


def _declared(payload: type[BaseModel]) -> set[int | str]:
    aliases = [field.validation_alias for field in payload.model_fields.values()]
    return {*payload.model_fields, *(alias for alias in aliases if isinstance(alias, str))}
