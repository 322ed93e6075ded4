"""A report in a folder: markdown, a csv for each table, a png for each figure, and one html page.

The page holds everything in itself: it needs no network, no script and no other file.
"""

from __future__ import annotations

import base64
import csv
import html
import importlib.metadata
import io
import numbers
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from .._version import __version__
from ..data.storage import replacing
from ..runtime.memory import human

DPI = 110
DIGITS = 4  # of a float that is shown; the csv files keep all
NOTHING = "–"  # shown where a cell is None
STEM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
RESERVED = frozenset(  # names that no file may have on Windows, whatever the ending
    ["con", "prn", "aux", "nul", *(f"{port}{k}" for port in ("com", "lpt") for k in range(1, 10))]
)
PACKAGES = ("numpy", "scipy", "numba", "finufft", "matplotlib")

STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --quiet: #57606a; --page: #ffffff;
  --band: #f3f5f7; --line: #d0d7de; --link: #0059b3; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e9ec; --quiet: #a5adb6; --page: #14171a;
  --band: #1f2429; --line: #3a424b; --link: #7db8ff; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0 auto; padding: 1rem; max-width: 62rem; background: var(--page);
  color: var(--text); font: 1.0625rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto,
  "Noto Sans", "Helvetica Neue", Arial, sans-serif; overflow-wrap: break-word; }
h1, h2, h3 { line-height: 1.25; }
h1 { font-size: 1.7rem; }
h2 { margin-top: 2.5rem; padding-top: .5rem; border-top: 1px solid var(--line);
  font-size: 1.35rem; }
h3 { font-size: 1.1rem; }
a { color: var(--link); }
nav { padding: .25rem 1rem; background: var(--band); border-radius: .5rem; }
nav li { padding: .2rem 0; }
figure { margin: 1.5rem 0; }
figcaption { margin: .5rem 0; color: var(--quiet); }
.card { padding: .5rem; background: #ffffff; border: 1px solid var(--line);
  border-radius: .5rem; text-align: center; }
img { display: block; max-width: 100%; height: auto; margin: 0 auto; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: .5rem; }
table { border-collapse: separate; border-spacing: 0; min-width: 100%; font-size: 1rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .7rem; border-bottom: 1px solid var(--line); text-align: left;
  white-space: nowrap; }
tbody tr:last-child > * { border-bottom: 0; }
thead th { background: var(--band); }
th:first-child { position: sticky; left: 0; background: var(--band); }
th[scope=row] { max-width: 45vw; white-space: normal; }
td.prose { min-width: 16rem; white-space: normal; }
.number { text-align: right; }
dl { display: grid; grid-template-columns: minmax(7rem, max-content) minmax(0, 1fr);
  gap: .3rem 1rem; }
dt { color: var(--quiet); }
dd { margin: 0; }
"""


# -- the parts of a report -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Heading:
    text: str
    anchor: str
    level: int

    def markdown(self) -> str:
        return f"{'#' * self.level} {_plain(self.text)}"

    def html(self) -> str:
        return f'<h{self.level} id="{self.anchor}">{html.escape(self.text)}</h{self.level}>'


@dataclass(frozen=True)
class _Text:
    text: str

    def markdown(self) -> str:
        return "\n\n".join(_plain(p) for p in _paragraphs(self.text))

    def html(self) -> str:
        return "\n".join(f"<p>{html.escape(p)}</p>" for p in _paragraphs(self.text))


@dataclass(frozen=True)
class _Facts:
    items: tuple[tuple[str, str], ...]

    def markdown(self) -> str:
        return "\n".join(f"- {_plain(key)}: {_plain(value)}" for key, value in self.items)

    def html(self) -> str:
        lines = (f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>" for k, v in self.items)
        return "\n".join(["<dl>", *lines, "</dl>"])


@dataclass(frozen=True)
class _Table:
    name: str
    label: str  # "Table 1. caption"
    header: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    highlight: frozenset[tuple[int, int]]

    def numeric(self, column: int) -> bool:
        """Does the column hold numbers, and nothing else?"""
        cells = [row[column] for row in self.rows if row[column] is not None]
        return bool(cells) and all(isinstance(cell, numbers.Real) for cell in cells)

    def csv(self) -> bytes:
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(self.header)
        writer.writerows([_exact(cell) for cell in row] for row in self.rows)
        return stream.getvalue().encode()

    def markdown(self) -> str:
        columns = range(len(self.header))
        lines = [[_plain(name) for name in self.header]]
        lines.append(["---:" if self.numeric(k) else "---" for k in columns])
        for i, row in enumerate(self.rows):
            cells = [_plain(shown(cell)) for cell in row]
            lines.append([f"**{c}**" if (i, k) in self.highlight else c
                          for k, c in enumerate(cells)])  # fmt: skip
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        return f"{_plain(self.label)} ([csv]({self.name}.csv))\n\n{table}"

    def html(self) -> str:
        classes = [' class="number"' if self.numeric(k) else "" for k in range(len(self.header))]
        head = "".join(
            f'<th scope="col"{kind}>{html.escape(name)}</th>'
            for name, kind in zip(self.header, classes, strict=True)
        )
        body = "\n".join(self._html_row(i, classes) for i in range(len(self.rows)))
        label = html.escape(self.label)
        return (
            f'<figure id="table-{self.name}">\n<figcaption>{label}</figcaption>\n'
            f'<div class="scroll" role="region" tabindex="0" aria-label="{label}">\n<table>\n'
            f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>\n</div>\n</figure>"
        )

    def _html_row(self, i: int, classes: Sequence[str]) -> str:
        cells = []
        for k, cell in enumerate(self.rows[i]):
            text = html.escape(shown(cell))
            if (i, k) in self.highlight:
                text = f"<strong>{text}</strong>"
            kind = ' class="prose"' if isinstance(cell, str) and len(cell) > 40 else classes[k]
            tag, attributes = ("td", kind) if k else ("th", f' scope="row"{classes[k]}')
            cells.append(f"<{tag}{attributes}>{text}</{tag}>")
        return f"<tr>{''.join(cells)}</tr>"


@dataclass(frozen=True)
class _Figure:
    name: str
    label: str  # "Figure 1. caption"
    caption: str
    png: bytes

    def markdown(self) -> str:
        return f"![{_plain(self.caption)}]({self.name}.png)\n\n{_plain(self.label)}"

    def html(self) -> str:
        data = base64.b64encode(self.png).decode("ascii")
        width, height = (int.from_bytes(self.png[k : k + 4], "big") for k in (16, 20))
        return (
            f'<figure id="figure-{self.name}">\n<div class="card"><img width="{width}" '
            f'height="{height}" alt="{html.escape(self.caption)}" '
            f'src="data:image/png;base64,{data}"></div>\n'
            f"<figcaption>{html.escape(self.label)}</figcaption>\n</figure>"
        )


_Part = _Heading | _Text | _Facts | _Table | _Figure


# -- the report ----------------------------------------------------------------------------------


class Report:
    """Sections of text, tables, figures and facts in the order in which they were added.

    All text is plain: it is escaped wherever it goes. Blank lines separate paragraphs.
    """

    def __init__(self, title: str, summary: str = "") -> None:
        self.title = title
        self._parts: list[_Part] = [_Text(summary)] if summary.strip() else []

    def add_section(self, heading: str, text: str = "") -> None:
        """Begin a section; what is added next belongs to it."""
        self._head(heading, 2)
        self.add_text(text)

    def add_text(self, text: str) -> None:
        """Add a paragraph, or several separated by blank lines."""
        if text.strip():
            self._parts.append(_Text(text))

    def add_facts(self, heading: str, mapping: Mapping[str, Any]) -> None:
        """Add a list of keys and values, shown as ``str`` gives them: a machine, settings, seeds.

        Its heading is below that of the section, if there is one.
        """
        self._head(heading, 3 if any(h.level == 2 for h in self._headings()) else 2)
        items = ((str(k), NOTHING if v is None else str(v)) for k, v in mapping.items())
        self._parts.append(_Facts(tuple(items)))

    def add_table(
        self,
        name: str,
        caption: str,
        header: Sequence[str],
        rows: Iterable[Sequence[Any]],
        *,
        highlight: Iterable[tuple[int, int]] = (),
    ) -> None:
        """Add a table, which also becomes the file ``name.csv``.

        Parameters
        ----------
        name : stem of the file, unique in the report
        rows : cells that are str, int, float or None; a float is shown with up to four significant
            digits and kept whole in the csv file, None is an en dash here and empty there. The
            first cell names the row.
        highlight : (row, column) of cells to print bold, counted from 0
        """
        self._check_name(name)
        cells = tuple(tuple(row) for row in rows)
        _check_cells(name, header, cells)
        bold = frozenset(highlight)
        for i, k in bold:
            if not (0 <= i < len(cells) and 0 <= k < len(header)):
                raise ValueError(
                    f"table {name!r}: highlight has ({i}, {k}), expected a row below {len(cells)} "
                    f"and a column below {len(header)}"
                )
        label = f"Table {self._count(_Table) + 1}. {caption}"
        self._parts.append(_Table(name, label, tuple(header), cells, bold))

    def add_figure(self, name: str, caption: str, figure: Any) -> None:
        """Add a matplotlib Figure, which also becomes ``name.png``; it is drawn at once.

        The caption is the alternative text as well, so it should say what there is to see.
        """
        self._check_name(name)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=DPI)
        label = f"Figure {self._count(_Figure) + 1}. {caption}"
        self._parts.append(_Figure(name, label, caption, buffer.getvalue()))

    def write(self, folder: str | os.PathLike[str]) -> Path:
        """Write everything into a folder, made if need be; the path of report.html in it.

        Each file is replaced whole, the page last; files of other names are left alone.
        """
        target = Path(folder)
        _check_folder(target)
        target.mkdir(parents=True, exist_ok=True)
        for part in self._parts:
            if isinstance(part, _Table):
                _put(target / f"{part.name}.csv", part.csv())
            elif isinstance(part, _Figure):
                _put(target / f"{part.name}.png", part.png)
        _put(target / "report.md", self.markdown().encode())
        page = target / "report.html"
        _put(page, self.html().encode())
        return page

    def markdown(self) -> str:
        """The report as markdown, with links to the files beside it."""
        return "\n\n".join([f"# {_plain(self.title)}", *(p.markdown() for p in self._parts)]) + "\n"

    def html(self) -> str:
        """The report as one page that needs nothing else."""
        title = html.escape(self.title)
        parts = [part.html() for part in self._parts]
        contents = self._contents()
        if contents:
            first = next(k for k, p in enumerate(self._parts) if isinstance(p, _Heading))
            parts.insert(first, contents)
        body = "\n".join(parts)
        return (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
            f"<h1>{title}</h1>\n{body}\n</main>\n</body>\n</html>\n"
        )

    def _contents(self) -> str:
        """Links to the headings of sections, "" where there are none."""
        links = "\n".join(
            f'<li><a href="#{heading.anchor}">{html.escape(heading.text)}</a></li>'
            for heading in self._headings()
            if heading.level == 2
        )
        return links and f'<nav aria-label="Contents">\n<ul>\n{links}\n</ul>\n</nav>'

    def _headings(self) -> list[_Heading]:
        return [part for part in self._parts if isinstance(part, _Heading)]

    def _head(self, text: str, level: int) -> None:
        anchor = f"section-{len(self._headings()) + 1}"
        self._parts.append(_Heading(text, anchor, level))

    def _count(self, kind: type[_Table] | type[_Figure]) -> int:
        return sum(isinstance(part, kind) for part in self._parts)

    def _check_name(self, name: str) -> None:
        if not STEM.fullmatch(name) or name.lower() in RESERVED or name.lower() == "report":
            raise ValueError(
                f"{name!r} cannot name a table or figure; expected letters, digits, '_' and '-', "
                "up to 64, and no word that names another file"
            )
        taken = {p.name.lower() for p in self._parts if isinstance(p, (_Table, _Figure))}
        if name.lower() in taken:  # case is no difference on some file systems
            raise ValueError(f"{name!r} names a table or figure of this report already; rename it")


# -- cells and text ------------------------------------------------------------------------------


def shown(cell: Any) -> str:
    """A cell for the eye: 0.123456 -> 0.1235, 19020 -> 19,020, None -> an en dash."""
    if cell is None:
        return NOTHING
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, numbers.Integral):
        return f"{int(cell):,}" if abs(int(cell)) >= 10_000 else str(int(cell))
    if isinstance(cell, numbers.Real):
        rounded = f"{float(cell):.{DIGITS}g}"
        large = 1e4 <= abs(float(rounded)) < 1e9
        return f"{float(rounded):,.0f}" if large else rounded
    return str(cell)


def _exact(cell: Any) -> str:
    """A cell for a program: nothing is rounded."""
    if cell is None:
        return ""
    if isinstance(cell, numbers.Real) and not isinstance(cell, numbers.Integral):
        return repr(float(cell))
    return str(cell)


def _check_cells(name: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    if not header:
        raise ValueError(f"table {name!r} has no columns; expected at least one")
    for i, row in enumerate(rows):
        if len(row) != len(header):
            raise ValueError(
                f"table {name!r}, row {i}: {len(row)} cells, expected {len(header)}; give None for "
                "an empty one"
            )
        for title, cell in zip(header, row, strict=True):
            if not isinstance(cell, (str, numbers.Real, type(None))):
                raise TypeError(
                    f"table {name!r}, row {i}, column {title!r}: a {type(cell).__name__} was "
                    "given; expected str, int, float or None"
                )


def _paragraphs(text: str) -> list[str]:
    """Pieces between blank lines, each on one line."""
    return [" ".join(piece.split()) for piece in re.split(r"\n\s*\n", text) if piece.strip()]


def _plain(text: str) -> str:
    """Text on one line in which markdown finds no marks."""
    line = " ".join(text.split())
    line = re.sub(r"([\\`*\[\]<>|&$~])", r"\\\1", line)
    line = re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", line)  # within a word it is no mark
    return re.sub(r"^([#+-]+|\d+[.)])(?=\s|$)", _escaped_start, line)


def _escaped_start(found: re.Match[str]) -> str:
    mark = found.group(1)
    return f"{mark[:-1]}\\{mark[-1]}"


# -- files ---------------------------------------------------------------------------------------


def _check_folder(target: Path) -> None:
    for path in (target, *target.parents):
        if path.is_dir():
            return
        if path.exists():
            raise ValueError(f"{os.fspath(path)!r} is a file; give a folder for the report")


def _put(path: Path, content: bytes) -> None:
    with replacing(path) as file:
        file.write(content)


# -- the machine ---------------------------------------------------------------------------------


def machine_facts(now: datetime | None = None) -> dict[str, str]:
    """What a measurement depends on: processor, memory, system, versions, and the date.

    It names neither the host nor the user, and holds no paths.

    Parameters
    ----------
    now : the time to record, the present if None; one without a zone is taken as UTC
    """
    facts = {
        "processor": _processor(),
        "cores": _cores(),
        "memory": _memory(),
        "operating system": f"{platform.system()} {platform.release()} ({platform.machine()})",
        "Python": f"{platform.python_version()} ({platform.python_implementation()})",
        "tgpfast": __version__,
    }
    facts.update((package, _version(package)) for package in PACKAGES)
    return {**facts, "date": _utc(now)}


def _processor(path: str = "/proc/cpuinfo") -> str:
    """The first model name that Linux gives, else what Python knows."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key.strip() == "model name" and value.strip():
                    return " ".join(value.split())
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown"


def _cores() -> str:
    """Logical cores, and how many of them this process may use if fewer."""
    present = os.cpu_count()
    if present is None:
        return "unknown"
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else present
    return str(present) if usable >= present else f"{present}, of which {usable} usable"


def _memory() -> str:
    try:
        return human(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return "unknown"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _utc(now: datetime | None) -> str:
    """ISO 8601 to the second, in UTC."""
    time = datetime.now(timezone.utc) if now is None else now
    aware = time if time.tzinfo else time.replace(tzinfo=timezone.utc)
    return aware.astimezone(timezone.utc).isoformat(timespec="seconds")
