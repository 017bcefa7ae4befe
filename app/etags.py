"""Preconditions on a resource's revision (RFC 9110, sections 8.8.3 and 13.1.1)."""

import re
from dataclasses import dataclass

_ENTITY_TAG = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
IF_MATCH_PATTERN = rf"^[ \t]*(?:\*|{_ENTITY_TAG}(?:[ \t]*,[ \t]*{_ENTITY_TAG})*)[ \t]*$"


@dataclass(frozen=True, slots=True)
class Precondition:
    """What If-Match asks for: `tags` is None where anything that exists will do."""

    tags: frozenset[str] | None = None

    def holds(self, revision: int) -> bool:
        """By strong comparison, so that a weak tag never matches."""
        return self.tags is None or f'"{revision}"' in self.tags


def parse_if_match(header: str | None) -> Precondition:
    """The precondition of an If-Match header; ValueError where it is not of the header's form."""
    if header is None:
        return Precondition()
    if not re.fullmatch(IF_MATCH_PATTERN, header):
        raise ValueError('is not * or a list of quoted entity tags such as "3"')
    tags = re.findall(_ENTITY_TAG, header)
    return Precondition(frozenset(tags) if tags else None)
