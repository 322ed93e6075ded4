"""The report: one page that stands alone, files that say the same, and nothing left behind."""

import base64
import csv
import os
import re
import struct
import zlib
from html.parser import HTMLParser

import numpy as np
import pytest

from tgpfast.paper import report_parts
from tgpfast.paper.page_style import STYLE
from tgpfast.paper.report import FIGURE_DPI, Report
from tgpfast.paper.report_parts import escape_markdown, format_cell

VOID = {"meta", "img", "br", "hr", "link", "input"}
NASTY = """<b>a</b> & "b" | 'c' *d* [e](f) `g` \\ &lt; $h$"""


class Canvas:
    """Saves a one-pixel png, as a matplotlib Figure saves a larger one."""

    def __init__(self, width=1, height=1):
        self.size, self.calls = (width, height), []

    def savefig(self, target, **options):
        self.calls.append(options)
        head = struct.pack(">IIBBBBB", *self.size, 8, 0, 0, 0, 0)
        pixels = zlib.compress((b"\0" + b"\xff" * self.size[0]) * self.size[1])
        target.write(b"\x89PNG\r\n\x1a\n")
        for kind, body in ((b"IHDR", head), (b"IDAT", pixels), (b"IEND", b"")):
            crc = struct.pack(">I", zlib.crc32(kind + body))
            target.write(struct.pack(">I", len(body)) + kind + body + crc)


class Page(HTMLParser):
    """Reads a page and holds it to the rules: balanced tags, ids used once."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids, self.text = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []
        assert len(set(self.ids)) == len(self.ids)

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names)
        self.tags.append((tag, dict(attrs), tuple(self.open)))
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append((self.open[-1] if self.open else "", data))

    def every(self, tag):
        return [attrs for name, attrs, _ in self.tags if name == tag]

    def words(self, *tags):
        return [data for tag, data in self.text if tag in tags]


@pytest.fixture
def example():
    """A report with every kind of part."""
    report = Report("A report", "First.\n\nSecond, on\ntwo lines.")
    report.add_section("Results", "What came out.")
    report.add_table(
        "scores",
        "KS of each method",
        ["method", "KS", "n", "note"],
        [["fd", 0.123456789, 19020, "x"], ["map", None, 7, None], ["ncfd", 1e-7, -3, "y|z"]],
    )
    report.add_figure("curve", "A curve", Canvas(20, 10))
    report.add_section("Setting")
    report.add_facts("Machine", {"cores": 2, "seed": 123456, "gamma": 0.123456789, "none": None})
    report.add_figure("second", "Another", Canvas())
    return report


def page_of(report):
    return Page(report.html())


# -- the page ------------------------------------------------------------------------------------


def test_the_page_is_sound_and_stands_alone(example):
    """Balanced tags, no script, nothing fetched, and text that fits a phone."""
    page = page_of(example)
    tags = {tag for tag, _, _ in page.tags}
    assert tags.isdisjoint({"script", "link", "iframe", "object", "base"})
    for _, attrs, _ in page.tags:
        for name in ("src", "href", "srcset", "poster", "data", "action"):
            assert attrs.get(name, "#").startswith(("#", "data:image/png;base64,"))
    assert "://" not in STYLE
    assert not re.search(r"url\(|@import", STYLE)
    viewport = [m["content"] for m in page.every("meta") if m.get("name") == "viewport"]
    assert viewport == ["width=device-width, initial-scale=1"]
    assert page.every("html") == [{"lang": "en"}]
    assert {"charset": "utf-8"} in page.every("meta")
    for rule in ("max-width: 100%", "overflow-x: auto", "prefers-color-scheme: dark", "system-ui"):
        assert rule in STYLE
    sizes = re.findall(r"font(?:-size)?: ([\d.]+)(\w+)", STYLE)
    assert sizes
    assert all(float(size) >= 1.0 and unit == "rem" for size, unit in sizes)  # 1rem is 16 px


def test_pictures_are_in_the_page(example):
    """As data that decode to the png that was drawn, with the caption to read instead."""
    images = page_of(example).every("img")
    assert [image["alt"] for image in images] == ["A curve", "Another"]
    assert [(image["width"], image["height"]) for image in images] == [("20", "10"), ("1", "1")]
    for image in images:
        data = base64.b64decode(image["src"].removeprefix("data:image/png;base64,"), validate=True)
        assert data.startswith(b"\x89PNG\r\n\x1a\n")
        assert data.endswith(b"IEND\xaeB`\x82")


def test_contents_lead_to_sections(example):
    """Every link has its target, in the order of the page, after the summary."""
    page = page_of(example)
    links = [link["href"] for link in page.every("a")]
    assert len(links) == 2
    assert all(link[1:] in page.ids for link in links)
    assert page.words("a") == ["Results", "Setting"] == page.words("h2")
    assert page.words("h1") == ["A report"] == page.words("title")
    assert page.words("h3") == ["Machine"]
    assert page.words("p") == ["First.", "Second, on two lines.", "What came out."]
    order = [tag for tag, _, _ in page.tags if tag in ("p", "nav", "h2")]
    assert order == ["p", "p", "nav", "h2", "p", "h2"]


def test_a_report_without_sections():
    """No empty list of contents; facts that stand alone are a section."""
    assert "<nav" not in Report("t").html()
    report = Report("t", "s")
    report.add_facts("Machine", {"a": 1})
    page = page_of(report)
    assert page.words("h2") == page.words("a") == ["Machine"]
    assert page.words("h3") == []


def test_a_table_in_the_page(example):
    """Heads with their scope, inside a box that scrolls, captions numbered by kind."""
    page = page_of(example)
    heads = page.every("th")
    assert [head["scope"] for head in heads] == ["col"] * 4 + ["row"] * 3
    assert [head.get("class") for head in heads[:4]] == [None, "number", "number", None]
    assert page.words("td") == ["0.1235", "19,020", "x", "–", "7", "–", "1e-07", "-3",
                                          "y|z"]  # fmt: skip
    inside = next(outer for tag, _, outer in page.tags if tag == "table")
    assert inside[-2:] == ("figure", "div")
    box = next(attrs for attrs in page.every("div") if attrs.get("class") == "scroll")
    assert box["tabindex"] == "0"
    assert box["aria-label"] == "Table 1. KS of each method"
    assert page.words("figcaption") == ["Table 1. KS of each method", "Figure 1. A curve",
                                        "Figure 2. Another"]  # fmt: skip
    assert {"table-scores", "figure-curve", "figure-second"} < set(page.ids)


def test_facts_are_shown_whole(example):
    """Settings and seeds must be usable again: no rounding, no separators."""
    page = page_of(example)
    assert page.words("dt") == ["cores", "seed", "gamma", "none"]
    assert page.words("dd") == ["2", "123456", "0.123456789", "–"]


def nasty_report():
    report = Report(NASTY, NASTY)
    report.add_section(NASTY, NASTY)
    report.add_table("t", NASTY, [NASTY, "b"], [[NASTY, 1], [NASTY, 2]])
    report.add_figure("f", NASTY, Canvas())
    report.add_facts(NASTY, {NASTY: NASTY})
    return report


def test_the_page_escapes_everything():
    """Marks in a text stay text, wherever it stands."""
    page = page_of(nasty_report())
    assert "b" not in {tag for tag, _, _ in page.tags}
    for tag in ("h1", "h2", "h3", "title", "a", "dt", "dd", "p"):
        assert set(page.words(tag)) == {NASTY}, tag
    assert NASTY in page.words("th")
    assert page.every("img")[0]["alt"] == NASTY
    assert page.words("figcaption") == [f"Table 1. {NASTY}", f"Figure 1. {NASTY}"]


def test_the_check_of_escapes_can_fail(monkeypatch):
    """Without escapes the same page has a tag that nobody wrote."""
    monkeypatch.setattr(report_parts.html, "escape", lambda text: text.replace('"', ""))
    assert "b" in {tag for tag, _, _ in page_of(nasty_report()).tags}


# -- markdown and csv ----------------------------------------------------------------------------


def cells_of(line):
    """Cells of a markdown row, with its escapes undone."""
    pieces = re.split(r"(?<!\\)\|", line)[1:-1]  # the texts here have no backslash before a pipe
    return [re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", piece.strip()) for piece in pieces]


def test_markdown(example):
    """One line a row, numbers to the right, files linked by their names."""
    text = example.markdown()
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 3
    assert [len(cells_of(row)) for row in rows] == [4] * 5
    assert cells_of(rows[1]) == ["---", "---:", "---:", "---"]
    assert cells_of(rows[2]) == ["fd", "0.1235", "19,020", "x"]
    assert cells_of(rows[4]) == ["ncfd", "1e-07", "-3", "y|z"]
    assert "![A curve](curve.png)" in text
    assert "([csv](scores.csv))" in text
    assert re.findall(r"^#+ .*", text, re.M) == ["# A report", "## Results", "## Setting",
                                                 "### Machine"]  # fmt: skip
    assert "- seed: 123456" in text.splitlines()


def test_markdown_escapes():
    """Every row of a table of marks has two cells, which read as they were given."""
    text = nasty_report().markdown()
    rows = [cells_of(line) for line in text.splitlines() if line.startswith("|")]
    assert [row[0] for row in rows] == [NASTY, "---", NASTY, NASTY]
    assert all(len(row) == 2 for row in rows)
    assert not re.search(r"(?<!\\)<", text)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("# no heading", "\\# no heading"), ("## none", "#\\# none"), ("- no list", "\\- no list"),
        ("1. no list", "1\\. no list"), ("---", "--\\-"), ("-1.5", "-1.5"), ("1.5", "1.5"),
        ("mnist_pca2", "mnist_pca2"), ("_x_", "\\_x\\_"), ("a\n|b", "a \\|b"), ("#5", "#5"),
    ],
)  # fmt: skip
def test_text_that_looks_like_markdown(given, expected):
    """Marks are escaped where they would count, and left where they would not."""
    assert escape_markdown(given) == expected


def test_csv_round_trip(tmp_path):
    """Every bit of a number and every character of a text come back; None is empty."""
    values = [0.1 + 0.2, 1 / 3, 1e-300, -0.0, float("inf"), np.float64(np.pi), np.float32(0.1)]
    report = Report("t")
    rows = [[NASTY, value, 10**20, None] for value in values]
    report.add_table("t", "c", ['a,"b"', "x", "n", "é\n"], [*rows, ["a\nb", 1, np.int64(5), "–"]])
    report.write(tmp_path)
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as stream:
        head, *found = csv.reader(stream)
    assert head == ['a,"b"', "x", "n", "é\n"]
    for cells, value in zip(found, values, strict=False):
        assert cells[0] == NASTY
        assert np.float64(cells[1]).tobytes() == np.float64(value).tobytes()
        assert cells[2:] == [str(10**20), ""]
    assert found[-1] == ["a\nb", "1", "5", "–"]


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (None, "–"), ("0.123456", "0.123456"), (0.123456, "0.1235"), (5.0, "5"), (5.34, "5.34"),
        (12345.6, "12,350"), (9999.6, "10,000"), (-12345.6, "-12,350"), (1e-7, "1e-07"),
        (1e12, "1e+12"), (0, "0"), (2024, "2024"), (14_262_515, "14,262,515"),
        (-14_262_515, "-14,262,515"), (float("nan"), "nan"), (float("inf"), "inf"),
        (np.float32(0.1), "0.1"), (np.int64(7), "7"), (True, "yes"), (False, "no"),
    ],
)  # fmt: skip
def test_cells_for_the_eye(cell, text):
    """Four significant digits, thousands apart, words as they are."""
    assert format_cell(cell) == text


# -- files ---------------------------------------------------------------------------------------


def test_files_of_a_report(example, tmp_path):
    """One csv a table, one png a figure, and nothing else; the folder is made."""
    folder = tmp_path / "a" / "b"
    page = example.write(folder)
    assert page == folder / "report.html"
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["curve.png", "report.html", "report.md", "scores.csv", "second.png"]
    assert page.read_text(encoding="utf-8") == example.html()
    assert (folder / "report.md").read_text(encoding="utf-8") == example.markdown()
    for link in re.findall(r"\]\(([^)]+)\)", example.markdown()):
        assert (folder / link).is_file()


@pytest.mark.skipif(os.name == "nt", reason="modes are of Unix")
def test_files_have_the_usual_mode(example, tmp_path):
    """Readable by those whom the umask allows, as files that are simply opened are."""
    (tmp_path / "plain").write_bytes(b"")
    page = example.write(tmp_path / "r")
    assert page.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_an_old_report_is_overwritten(example, tmp_path):
    """Its own files anew, those of others untouched."""
    example.write(tmp_path)
    (tmp_path / "mine.txt").write_text("kept")
    report = Report("Newer")
    report.add_table("scores", "c", ["a"], [[1]])
    page = report.write(tmp_path)
    assert Page(page.read_text(encoding="utf-8")).words("h1") == ["Newer"]
    assert (tmp_path / "scores.csv").read_text() == "a\n1\n"
    assert (tmp_path / "mine.txt").read_text() == "kept"
    assert not list(tmp_path.glob("*.part"))


def test_a_failure_leaves_the_old_report(example, tmp_path, monkeypatch):
    """No half-written file and no temporary one."""
    page = example.write(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fail(source, target):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    newer = Report("Newer")
    newer.add_table("scores", "c", ["a"], [[1]])
    with pytest.raises(OSError, match="disk full"):
        newer.write(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert page.exists()


@pytest.mark.parametrize("below", ["", "in", "in/it"])
def test_a_file_is_no_folder(example, tmp_path, below):
    """Neither it nor anything below it can take the report; it stays as it was."""
    (tmp_path / "f").write_text("kept")
    with pytest.raises(ValueError, match=r"f' is a file; give a folder for the report"):
        example.write(tmp_path / "f" / below)
    assert (tmp_path / "f").read_text() == "kept"


# -- tables --------------------------------------------------------------------------------------


def test_a_table_without_rows():
    """A head alone is a table too."""
    report = Report("t")
    report.add_table("x", "c", ["a", "b"], [])
    assert page_of(report).words("th") == ["a", "b"]
    assert "| a | b |\n| --- | --- |" in report.markdown()


def test_rows_may_be_an_iterator():
    """They are taken in once."""
    report = Report("t")
    report.add_table("x", "c", ["a"], ([k] for k in range(3)))
    assert page_of(report).words("th") == ["a", "0", "1", "2"]


# -- matplotlib -----------------------------------------------------------------------------------


def test_a_figure_of_matplotlib(tmp_path):
    """Drawn at once, at the stated resolution; later changes do not count."""
    figures = pytest.importorskip("matplotlib.figure")
    figure = figures.Figure(figsize=(2.0, 1.0))
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1])
    report = Report("t")
    report.add_figure("f", "c", figure)
    before = report.html()
    figure.clear()
    assert report.html() == before
    image = Page(before).every("img")[0]
    assert (image["width"], image["height"]) == (str(2 * FIGURE_DPI), str(FIGURE_DPI))
    report.write(tmp_path)
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
    assert base64.b64encode((tmp_path / "f.png").read_bytes()).decode() in image["src"]
