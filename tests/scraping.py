"""The metrics as a test reads them: before, after, and what came in between."""

from collections import Counter
from collections.abc import Mapping

import httpx
from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]


class Metrics:
    """What one scrape found, or what two differ by."""

    def __init__(self, values: Mapping[tuple[str, Labels], float]) -> None:
        self._values = dict(values)

    @classmethod
    def of(cls, text: str) -> "Metrics":
        families = text_string_to_metric_families(text)
        samples = [sample for family in families for sample in family.samples]
        return cls({(one.name, frozenset(one.labels.items())): one.value for one in samples})

    def value(self, name: str, **labels: str) -> float:
        """The sum over all series of this name that have these labels."""
        wanted = frozenset(labels.items())
        return sum(value for (other, has), value in self._values.items() if other == name and wanted <= has)

    def by(self, name: str, *labels: str) -> Counter[tuple[str, ...]]:
        """The values above 0, added up by these labels."""
        found: Counter[tuple[str, ...]] = Counter()
        for (other, has), value in self._values.items():
            if other == name and value:
                found[tuple(dict(has)[label] for label in labels)] += int(value)
        return found

    def since(self, before: "Metrics") -> "Metrics":
        return Metrics({key: value - before._values.get(key, 0) for key, value in self._values.items()})  # noqa: SLF001 - of its own kind


def scrape(url: str) -> Metrics:
    answer = httpx.get(f"{url}/metrics", timeout=30)
    assert answer.status_code == 200
    return Metrics.of(answer.text)
