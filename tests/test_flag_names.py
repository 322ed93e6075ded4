"""Messages of Python functions in the words of the command line."""

import pytest

from tgpfast.cli.command_line import COMMANDS
from tgpfast.cli.flag_names import name_data, name_flags

FIT = COMMANDS["fit"].flags


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lam=0.0: expected a number", "--lam 0.0: expected a number"),
        ("Raise lam (10 times, say) or gamma, or use method=\"map\"",
         "Raise --lam (10 times, say) or --gamma, or use --method map"),
        ("expected lam from 1 to 2", "expected --lam from 1 to 2"),
        ('use method="fd" or "map"', "use --method fd or map"),
        ("features='random', n_features=5", "--feature-kind random, --features 5"),
        ('drop precision= or engine="spectral"', "drop --precision or --engine spectral"),
        ("support={'a': (1.0, None), 'b': (0, 2)}: no", "--support a=1: b=0:2: no"),
        ("with discrete=['visits']", "with --discrete visits"),
        ("support and period: a lattice", "--support and --period: a lattice"),
        ("leave it out of discrete, or", "leave it out of --discrete, or"),
        ("give 3 rows, or base=GaussianBase(mean, covariance)",
         "give 3 rows, or base=GaussianBase(mean, covariance) (in Python)"),
        ("Raise budget= or TGPFAST_MEMORY_BUDGET, or", "Raise TGPFAST_MEMORY_BUDGET, or"),
        ('or pass missing="drop" to fit, update or evaluate', "or pass --missing drop"),
    ],
)  # fmt: skip
def test_parameters_are_named_by_their_options(text, expected):
    assert name_flags(text, FIT) == expected


@pytest.mark.parametrize(
    "text",
    [
        "column 0 ('gamma') is constant",  # names of columns
        "data.csv has no column 'w'; it has lam, gamma",
        "lam=3.csv, line 2: 3 cells",  # names of files
        "'runs/seed=1/m.npz' is damaged",
        "lam gamma^2 is beyond the range",  # a formula
        "the method is the base alone",
    ],
)
def test_other_words_stay(text):
    """A name of a file or column is no parameter."""
    assert name_flags(text, FIT, ["lam=3.csv"]) == text


def test_without_the_words_of_the_command_line_a_file_would_be_renamed():
    """Negative control of what is left as typed."""
    assert name_flags("lam=3.csv, line 2", FIT) == "--lam 3.csv, line 2"


def test_commands_name_their_own_options():
    for command, text, expected in (
        ("query", "q=1.5: expected", "--quantile 1.5: expected"),
        ("query", "given: 'x' is nan", "--given: 'x' is nan"),
        ("evaluate", "n_directions=0: expected", "--directions 0: expected"),
        ("sample", "n=0: expected", "--rows 0: expected"),
    ):
        assert name_flags(text, COMMANDS[command].flags) == expected


def test_rows_are_named_by_their_file():
    assert name_data("X holds nan at row 3", "rows.npy") == "rows.npy holds nan at row 3"
    assert name_data("Y, row 3: far", "rows.npy") == "rows.npy, row 3: far"
    assert name_data("column 'X' is constant", "rows.npy") == "column 'X' is constant"
