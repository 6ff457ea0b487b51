"""JSON schemas without what costs tokens and says nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_HUGE = 99_999
_NULL = {"type": "null"}


def slim(schema: Mapping[str, Any], *, given: bool = False) -> dict[str, Any]:
    """Return a schema without what costs tokens and says nothing: the keys of answers say it all.

    Of what is `given` null is left out: it is accepted, and means what leaving it out means.
    """
    made: dict[str, Any] = _slim(schema, schema.get("$defs", {}), given=given)
    if not given and "required" in schema:
        made["required"] = schema["required"]  # below the root the keys are there or not as said
    return made


def _slim(schema: Any, known: Mapping[str, Any], *, given: bool) -> Any:
    if isinstance(schema, list):
        return [_slim(item, known, given=given) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _slim(known[schema["$ref"].rpartition("/")[2]], known, given=given)
    kept = {
        name: {each: _slim(value, known, given=given) for each, value in part.items()}
        if name == "properties"
        else _slim(part, known, given=given)
        for name, part in schema.items()
        if name != "$defs" and (given or name != "required")
        if not (name == "title" and isinstance(part, str))
        if given or not (name == "description" and isinstance(part, str))
        if not (given and _is_checked_here(name, part))
        if given or not (name == "type" and "enum" in schema)
    }
    arms = kept.get("anyOf", ())
    others = [arm for arm in arms if arm != _NULL]
    if _NULL not in arms or len(others) != 1:
        return kept
    rest = {name: kept[name] for name in kept if name != "anyOf"}
    if given:
        return {**others[0], **rest}
    simple = isinstance(others[0].get("type"), str) and "enum" not in others[0]
    return {**others[0], **rest, "type": [others[0]["type"], "null"]} if simple else kept


def _is_checked_here(name: str, part: Any) -> bool:
    """Whether a part of a schema is no news to a model: what is wrong is said when it is sent."""
    if name in ("minLength", "maxLength", "maxItems"):
        return True
    return (name, part) in (("default", None), ("minimum", 0)) or (
        name == "maximum" and part > _HUGE
    )
