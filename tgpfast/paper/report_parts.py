"""The parts of a report: headings, text, facts, tables and figures, as markdown and as html."""

from __future__ import annotations

import base64
import csv
import html
import io
import numbers
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SHOWN_DIGITS = 4  # significant digits of a float on the page; the csv files keep all of them
EMPTY_CELL = "–"  # shown where a cell is None
PROSE_CHARACTERS = 40  # a longer cell of text may wrap


@dataclass(frozen=True)
class Heading:
    """The heading of a section; ``anchor`` is what links of the page point to."""

    text: str
    anchor: str
    level: int

    def markdown(self) -> str:
        return f"{'#' * self.level} {escape_markdown(self.text)}"

    def html(self) -> str:
        return f'<h{self.level} id="{self.anchor}">{html.escape(self.text)}</h{self.level}>'


@dataclass(frozen=True)
class Text:
    """Paragraphs, separated by blank lines."""

    text: str

    def markdown(self) -> str:
        return "\n\n".join(escape_markdown(p) for p in _split_paragraphs(self.text))

    def html(self) -> str:
        return "\n".join(f"<p>{html.escape(p)}</p>" for p in _split_paragraphs(self.text))


@dataclass(frozen=True)
class Facts:
    """Pairs of a key and its value."""

    items: tuple[tuple[str, str], ...]

    def markdown(self) -> str:
        return "\n".join(
            f"- {escape_markdown(key)}: {escape_markdown(value)}" for key, value in self.items
        )

    def html(self) -> str:
        lines = (f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>" for k, v in self.items)
        return "\n".join(["<dl>", *lines, "</dl>"])


@dataclass(frozen=True)
class Table:
    """A table, which is written to ``name``.csv too."""

    name: str
    label: str  # "Table 1. caption"
    header: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def is_numeric(self, column: int) -> bool:
        """Whether the column holds at least one number and nothing else but empty cells."""
        cells = [row[column] for row in self.rows if row[column] is not None]
        return bool(cells) and all(isinstance(cell, numbers.Real) for cell in cells)

    def csv(self) -> bytes:
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(self.header)
        writer.writerows([_format_exact(cell) for cell in row] for row in self.rows)
        return stream.getvalue().encode()

    def markdown(self) -> str:
        lines = [[escape_markdown(name) for name in self.header]]
        lines.append(["---:" if self.is_numeric(k) else "---" for k in range(len(self.header))])
        lines += [[escape_markdown(format_cell(cell)) for cell in row] for row in self.rows]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        return f"{escape_markdown(self.label)} ([csv]({self.name}.csv))\n\n{table}"

    def html(self) -> str:
        classes = [' class="number"' if self.is_numeric(k) else "" for k in range(len(self.header))]
        head = "".join(
            f'<th scope="col"{kind}>{html.escape(name)}</th>'
            for name, kind in zip(self.header, classes, strict=True)
        )
        body = "\n".join(_html_row(row, classes) for row in self.rows)
        label = html.escape(self.label)
        return (
            f'<figure id="table-{self.name}">\n<figcaption>{label}</figcaption>\n'
            f'<div class="scroll" role="region" tabindex="0" aria-label="{label}">\n<table>\n'
            f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>\n</div>\n</figure>"
        )


@dataclass(frozen=True)
class Figure:
    """A picture, which is written to ``name``.png too."""

    name: str
    label: str  # "Figure 1. caption"
    caption: str
    png: bytes

    def markdown(self) -> str:
        caption, label = escape_markdown(self.caption), escape_markdown(self.label)
        return f"![{caption}]({self.name}.png)\n\n{label}"

    def html(self) -> str:
        data = base64.b64encode(self.png).decode("ascii")
        # the header of a png file has width and height at bytes 16 and 20
        width, height = (int.from_bytes(self.png[k : k + 4], "big") for k in (16, 20))
        return (
            f'<figure id="figure-{self.name}">\n<div class="card"><img width="{width}" '
            f'height="{height}" alt="{html.escape(self.caption)}" '
            f'src="data:image/png;base64,{data}"></div>\n'
            f"<figcaption>{html.escape(self.label)}</figcaption>\n</figure>"
        )


Part = Heading | Text | Facts | Table | Figure


def format_cell(cell: Any) -> str:
    """A cell for a reader: 0.123456 -> 0.1235, 19020 -> 19,020, None -> an en dash."""
    if cell is None:
        return EMPTY_CELL
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, numbers.Integral):
        return f"{int(cell):,}" if abs(int(cell)) >= 10_000 else str(int(cell))
    if isinstance(cell, numbers.Real):
        rounded = f"{float(cell):.{SHOWN_DIGITS}g}"
        large = 1e4 <= abs(float(rounded)) < 1e9
        return f"{float(rounded):,.0f}" if large else rounded
    return str(cell)


def escape_markdown(text: str) -> str:
    """Text on one line, with every character escaped that markdown would interpret."""
    line = " ".join(text.split())
    line = re.sub(r"([\\`*\[\]<>|&$~])", r"\\\1", line)
    line = re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", line)  # markdown ignores _ within a word
    start = re.match(r"([#+-]+|\d+[.)])(?=\s|$)", line)  # a heading or an item of a list
    return f"{line[: start.end() - 1]}\\{line[start.end() - 1 :]}" if start else line


def _format_exact(cell: Any) -> str:
    """A cell for a program, without rounding."""
    if cell is None:
        return ""
    if isinstance(cell, numbers.Real) and not isinstance(cell, numbers.Integral):
        return repr(float(cell))
    return str(cell)


def _html_row(row: Sequence[Any], classes: Sequence[str]) -> str:
    cells = []
    for k, cell in enumerate(row):
        is_prose = isinstance(cell, str) and len(cell) > PROSE_CHARACTERS
        kind = ' class="prose"' if is_prose else classes[k]
        tag, attributes = ("td", kind) if k else ("th", f' scope="row"{classes[k]}')
        cells.append(f"<{tag}{attributes}>{html.escape(format_cell(cell))}</{tag}>")
    return f"<tr>{''.join(cells)}</tr>"


def _split_paragraphs(text: str) -> list[str]:
    """The pieces between blank lines, each on one line."""
    return [" ".join(piece.split()) for piece in re.split(r"\n\s*\n", text) if piece.strip()]
