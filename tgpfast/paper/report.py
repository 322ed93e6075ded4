"""A report in a folder: markdown, one csv per table, one png per figure, and one html page.

The html page is self-contained: it needs no network, no script and no other file.
"""

from __future__ import annotations

import html
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..data.storage import replacing
from .page_style import STYLE
from .report_parts import EMPTY_CELL, Facts, Figure, Heading, Part, Table, Text, escape_markdown

FIGURE_DPI = 110  # a figure of 9 inches is 1,000 pixels wide, the width of the page


class Report:
    """Sections of text, tables, figures and facts, in the order in which they are added.

    All text is plain text and is escaped for markdown and html. Blank lines separate paragraphs.

    Parameters
    ----------
    title : str
    summary : str, default ""
        Text below the title.
    """

    def __init__(self, title: str, summary: str = "") -> None:
        self.title = title
        self._parts: list[Part] = [Text(summary)] if summary.strip() else []

    def add_section(self, heading: str, text: str = "") -> None:
        """Begin a section, with an optional first text."""
        self._add_heading(heading, 2)
        if text.strip():
            self._parts.append(Text(text))

    def add_facts(self, heading: str, mapping: Mapping[str, Any]) -> None:
        """Add a list of keys and values, such as the settings of a run.

        The heading is one level below that of the current section, if there is one.
        """
        has_section = any(h.level == 2 for h in self._headings())
        self._add_heading(heading, 3 if has_section else 2)
        items = ((str(k), EMPTY_CELL if v is None else str(v)) for k, v in mapping.items())
        self._parts.append(Facts(tuple(items)))

    def add_table(
        self, name: str, caption: str, header: Sequence[str], rows: Iterable[Sequence[Any]]
    ) -> None:
        """Add a table, which is also written to ``name.csv``.

        Parameters
        ----------
        name : str
            Stem of the csv file, unique in the report.
        caption : str
        header : sequence of str
        rows : iterable of sequences
            Cells are str, int, float or None. The page shows four significant digits of a float
            and an en dash for None; the csv file has all digits and an empty cell. The first cell
            names the row.
        """
        label = f"Table {self._count(Table) + 1}. {caption}"
        self._parts.append(Table(name, label, tuple(header), tuple(tuple(row) for row in rows)))

    def add_figure(self, name: str, caption: str, figure: Any) -> None:
        """Render a matplotlib Figure, which is also written to ``name.png``.

        The caption is the alternative text too, so it should describe the picture.
        """
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=FIGURE_DPI)
        label = f"Figure {self._count(Figure) + 1}. {caption}"
        self._parts.append(Figure(name, label, caption, buffer.getvalue()))

    def write(self, folder: str | os.PathLike[str]) -> Path:
        """Write all files into a folder and return the path of report.html.

        The folder is created if necessary. Each file is replaced as a whole, the page last. Other
        files in the folder stay as they are.
        """
        target = Path(folder)
        check_report_folder(target)
        target.mkdir(parents=True, exist_ok=True)
        for part in self._parts:
            if isinstance(part, Table):
                _replace_file(target / f"{part.name}.csv", part.csv())
            elif isinstance(part, Figure):
                _replace_file(target / f"{part.name}.png", part.png)
        _replace_file(target / "report.md", self.markdown().encode())
        page = target / "report.html"
        _replace_file(page, self.html().encode())
        return page

    def markdown(self) -> str:
        """The report as markdown, with links to the files beside it."""
        parts = [part.markdown() for part in self._parts]
        return "\n\n".join([f"# {escape_markdown(self.title)}", *parts]) + "\n"

    def html(self) -> str:
        """The report as one self-contained page."""
        title = html.escape(self.title)
        parts = [part.html() for part in self._parts]
        if self._headings():
            first = next(k for k, p in enumerate(self._parts) if isinstance(p, Heading))
            parts.insert(first, self._contents())
        body = "\n".join(parts)
        return (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
            f"<h1>{title}</h1>\n{body}\n</main>\n</body>\n</html>\n"
        )

    def _contents(self) -> str:
        """Links to the headings of the sections."""
        links = "\n".join(
            f'<li><a href="#{heading.anchor}">{html.escape(heading.text)}</a></li>'
            for heading in self._headings()
            if heading.level == 2
        )
        return f'<nav aria-label="Contents">\n<ul>\n{links}\n</ul>\n</nav>'

    def _headings(self) -> list[Heading]:
        return [part for part in self._parts if isinstance(part, Heading)]

    def _add_heading(self, text: str, level: int) -> None:
        anchor = f"section-{len(self._headings()) + 1}"
        self._parts.append(Heading(text, anchor, level))

    def _count(self, kind: type[Table] | type[Figure]) -> int:
        return sum(isinstance(part, kind) for part in self._parts)


def check_report_folder(target: Path) -> None:
    """ValueError if the folder cannot be created because a file is in its place."""
    for path in (target, *target.parents):
        if path.is_dir():
            return
        if path.exists():
            raise ValueError(f"{os.fspath(path)!r} is a file; give a folder for the report")


def _replace_file(path: Path, content: bytes) -> None:
    with replacing(path) as file:
        file.write(content)
