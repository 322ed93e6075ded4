"""Markdown pages of the repository, and what tests find in them: code, commands and names."""

import re
from pathlib import Path

import pytest

import tgpfast as tgp

ROOT = Path(__file__).parents[1]


def read_page(name):
    return (ROOT / name).read_text(encoding="utf-8")


def pages():
    """Names of the README and of the pages of the documentation, the changelog left out."""
    names = [f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))]
    return ["README.md", *(name for name in names if name != "docs/changelog.md")]


def find_blocks(text, language):
    """The code blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def without_blocks(text):
    return re.sub(r"^```[^\n]*\n.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def find_commands(text):
    """Every `tgpfast ...` in the text and in blocks of the shell."""
    found = re.findall(r"`(tgpfast [a-z][^`]*)`", " ".join(without_blocks(text).split()))
    lines = [part for block in find_blocks(text, "sh") for part in re.split(r"\n|&&", block)]
    lines = [line.split("#")[0].strip() for line in lines]
    return found + [line for line in lines if line.startswith("tgpfast ")]


def run_blocks(name, folder):
    """Run the python blocks of a page in a folder; return the names that they leave behind."""
    names = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for block in find_blocks(read_page(name), "python"):
            exec(compile(block, name, "exec"), names)
    return names


def find_name(path):
    """What ``tgp.path`` is; AttributeError where there is nothing."""
    thing = tgp
    for name in path.split("."):
        thing = getattr(thing, name)
    return thing
