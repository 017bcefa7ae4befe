"""The parts that the reports' pages are made of, and the page around them."""

import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from loadtest.record import State, Verdict

SIGNS: dict[State, str] = {"holds": "✓", "broken": "✕", "unproven": "?"}


def document(title: str, parts: Iterable[str]) -> str:
    """One HTML file that needs nothing else: no script, no font, no network."""
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{safe(title)}</title><link rel="icon" href="data:,"><style>{style}</style></head>'
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def verdict(found: Verdict) -> str:
    reasons = "".join(f"<li>{safe(reason)}</li>" for reason in found.reasons)
    return (
        f'<div class="verdict {found.state}" id="verdict" role="status">'
        f"<strong>{SIGNS[found.state]} {safe(found.headline)}</strong><ul>{reasons}</ul></div>"
    )


def tiles(figures: Iterable[tuple[str, str]]) -> str:
    """Each a figure and what it counts."""
    inside = "".join(
        f'<div class="tile"><b>{safe(big)}</b><span>{safe(small)}</span></div>' for big, small in figures
    )
    return f'<div class="tiles">{inside}</div>'


def facts(of_run: Mapping[str, str]) -> str:
    entries = ""
    for name, value in of_run.items():
        told = f"<code>{safe(value)}</code>" if name == "command" else safe(value)
        entries += f"<dt>{safe(name)}</dt><dd>{told}</dd>"
    return f"<dl>{entries}</dl>"


def section(title: str, note: str, body: str) -> str:
    return f'<section><h2>{safe(title)}</h2><p class="note">{safe(note)}</p>{body}</section>'


def figure(name: str, drawing: str) -> str:
    return f'<figure class="scroll plot" id="{name}">{drawing}</figure>'


def details(table: str, words: str = "As a table") -> str:
    return f"<details><summary>{safe(words)}</summary>{table}</details>"


def table(head: Iterable[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    top = "".join(f'<th scope="col">{safe(cell)}</th>' for cell in head)
    lines = []
    for row in rows:
        mark = ' class="all"' if row[0] == "all calls" else ""
        lines.append(f"<tr{mark}>{''.join(f'<td>{safe(cell)}</td>' for cell in row)}</tr>")
    body = f"<thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return f'<div class="scroll"><table class="{kind}">{body}</table></div>'


def safe(words: str) -> str:
    return html.escape(words)
