"""As much of JSON Schema 2020-12 as the service's OpenAPI document uses; any other keyword is an error."""

import re
from collections.abc import Callable
from typing import Any

Document = dict[str, Any]

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "null": lambda value: value is None,
}
_RULES: dict[str, Callable[[Any, Any], bool]] = {
    "type": lambda rule, value: _TYPES[rule](value),
    "enum": lambda rule, value: value in rule,
    "const": lambda rule, value: value == rule,
    "pattern": lambda rule, value: re.search(rule, value) is not None,
    "minLength": lambda rule, value: len(value) >= rule,
    "maxLength": lambda rule, value: len(value) <= rule,
    "minItems": lambda rule, value: len(value) >= rule,
    "uniqueItems": lambda rule, value: not rule or len({repr(one) for one in value}) == len(value),
    "maxProperties": lambda rule, value: len(value) <= rule,
    "minimum": lambda rule, value: value >= rule,
    "maximum": lambda rule, value: value <= rule,
    "required": lambda rule, value: set(rule) <= value.keys(),
}
_ANNOTATIONS = {"title", "description", "default", "examples", "format", "readOnly"}


def resolve(document: Document, part: Document) -> Document:
    """What a $ref leads to, else the part itself."""
    if "$ref" not in part:
        return part
    found: Any = document
    for step in part["$ref"].removeprefix("#/").split("/"):
        found = found[step]
    return resolve(document, found)


def faults(document: Document, schema: Document, value: Any, at: str = "#") -> list[str]:
    """Why `value` is not what `schema` says; empty where it is."""
    schema = resolve(document, schema)
    found: list[str] = []
    # The type first: the other keywords are asked only of a value that is of it.
    for keyword, rule in sorted(schema.items(), key=lambda item: item[0] != "type"):
        if keyword in _RULES:
            if not _RULES[keyword](rule, value):
                return [f"{at}: {value!r} is not {keyword} {rule!r}"]
        elif keyword == "anyOf":
            if all(faults(document, choice, value, at) for choice in rule):
                found.append(f"{at}: {value!r} is none of {rule}")
        elif keyword == "items":
            found += [fault for one in value for fault in faults(document, rule, one, f"{at}/-")]
        elif keyword == "properties":
            for name in value.keys() & rule.keys():
                found += faults(document, rule[name], value[name], f"{at}/{name}")
        elif keyword == "additionalProperties":
            for name in value.keys() - schema.get("properties", {}).keys():
                found += _of_additional(document, rule, value[name], f"{at}/{name}")
        elif keyword == "propertyNames":
            found += [fault for name in value for fault in faults(document, rule, name, f"{at}/{name}")]
        elif keyword not in _ANNOTATIONS:
            raise NotImplementedError(f"{at}: {keyword}")
    return found


def _of_additional(document: Document, rule: Any, value: Any, at: str) -> list[str]:
    if isinstance(rule, bool):
        return [] if rule else [f"{at}: is not described"]
    return faults(document, rule, value, at)
