"""JSON Schema of spaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def schema(space: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of one element; raises an error such as KeyError or TypeError if `space` describes none."""
    if space["type"] in ("dict", "mixed"):
        parts = space["spaces"] if space["type"] == "dict" else space["parts"]
        return object_of({key: schema(part) for key, part in parts.items()}, sorted(parts))
    number = "number" if space["dtype"].startswith("float") else "integer"
    found: dict[str, Any] = {"type": number}
    if space["type"] == "discrete":
        first = space.get("start", 0)
        found |= {"minimum": first, "maximum": first + space["n"] - 1}
    for size in reversed(space["shape"]):
        found = {"type": "array", "items": found, "minItems": size, "maxItems": size}
    return found


def object_of(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    """An object of these properties and no others."""
    found = {"type": "object", "properties": properties, "additionalProperties": False}
    return found | ({"required": required} if required else {})
