"""Messages of the Python functions, in the words of the command line."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..data.rows import TAKES_MISSING
from ..runtime.memory import BUDGET_VARIABLE

# parameters that mean the same in every command; those of a command alone are in `Command.flags`
COMMON_FLAGS = {
    "columns": "--columns", "missing": "--missing", "seed": "--seed", "budget": BUDGET_VARIABLE,
}  # fmt: skip
PYTHON_ONLY = ("moments", "sample_weight", "solver", "n_draws", "n_modes")  # without a flag
# Columns may have the names of parameters. A bare name is a parameter only after these words.
BEFORE_BARE_NAMES = (
    r"\b(?:[Rr]aise|[Ll]ower|[Gg]ive|[Cc]hoose|[Ee]xpected|[Ww]ith a|takes no|leave it out of)"
)
AFTER_FIRST_NAMES = r": | has | names | of column "  # and before these, first in a message
QUOTED = r"(?:'[^']*'|\"[^\"]*\")"
CALL = r"\w+\([^()]*\)"
VALUE = rf"{QUOTED}|{CALL}|\{{[^{{}}]*\}}|\[[^\[\]]*\]|\([^()]*\)|[^\s,;:()]+"


def name_flags(text: str, flags: Mapping[str, str], typed: Sequence[str] = ()) -> str:
    """Replace parameters of Python functions by options of the command line.

    Parameters
    ----------
    text : str
        The message of an error or a warning.
    flags : mapping of str to str
        Parameter -> option, such as ``{"n_features": "--features"}``; they precede COMMON_FLAGS.
    typed : sequence of str
        The words of the command line, and names of files; they are left as they are.

    Examples
    --------
    >>> name_flags('raise lam, or use method="fd"', {"lam": "--lam", "method": "--method"})
    'raise --lam, or use --method fd'
    """
    known = COMMON_FLAGS | dict(flags)
    names = "|".join(map(re.escape, sorted([*known, *PYTHON_ONLY], key=len, reverse=True)))
    kept = sorted({re.escape(word) for word in typed if re.search(names, word)}, key=len)
    parts = [f"(?P<kept>{'|'.join(kept[::-1]) or '(?!)'}|(?<!=){QUOTED})"]
    # further values, as in: method="fd" or "map"
    parts += [rf"(?<![\w.'-])(?P<name>{names})=(?P<value>(?:{VALUE})?)"
              rf"(?P<more>(?:(?:, | or ){QUOTED})*)"]  # fmt: skip
    listed = rf"(?:{names})(?![\w=]| (?:{names})\b)"
    some = rf"{listed}(?:(?: \([^()]*\))?(?:, or |, | or | and ){listed})*"
    parts += [rf"(?P<bare>^{some}(?={AFTER_FIRST_NAMES})|{BEFORE_BARE_NAMES} {some})"]

    def replace(found: re.Match[str]) -> str:
        if found["kept"] is not None:
            return found["kept"]
        if found["bare"] is not None:
            return re.sub(rf"\b(?:{names})\b", lambda n: known.get(n[0], n[0]), found["bare"])
        name, value = found["name"], found["value"]
        if name not in known or re.fullmatch(CALL, value):
            return f"{found[0]} (in Python)"
        return f"{known[name]} {_as_typed(value)}".rstrip() + re.sub(r"['\"]", "", found["more"])

    named = re.sub("|".join(parts), replace, text)
    named = named.replace(f" to {TAKES_MISSING}", "")  # of the functions; the command takes it
    return re.sub(rf"{BUDGET_VARIABLE} or (?={BUDGET_VARIABLE})", "", named)


def name_data(text: str, data: str) -> str:
    """Replace X and Y, which rows are called in Python, by the name of the data.

    Examples
    --------
    >>> name_data("X has 3 columns, expected 2", "rows.npy")
    'rows.npy has 3 columns, expected 2'
    """
    return re.sub(r"^[XY](?= (?:has|holds|is|must)\b|, row )", lambda _: data, text)


def _as_typed(value: str) -> str:
    """A value as a user types it: without quotes, a mapping as COLUMN=VALUE."""
    try:
        known = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value
    if isinstance(known, dict):
        return " ".join(f"{column}={_range_text(item)}" for column, item in known.items())
    if isinstance(known, (list, tuple)):
        return " ".join(map(str, known))
    return known if isinstance(known, str) else value


def _range_text(item: Any) -> str:
    """An end that is None is left out, as in price=0:."""
    ends = item if isinstance(item, (list, tuple)) else (item,)
    return ":".join("" if end is None else f"{end:g}" for end in ends)
