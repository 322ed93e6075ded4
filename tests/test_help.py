"""Help texts and docstrings agree with the code: names, defaults and choices."""

import argparse
import inspect
import re
from dataclasses import fields

import numpy as np
import pytest

import tgpfast as tgp
from tgpfast import cli, kernels, plot
from tgpfast.cli.command_line import COMMANDS, make_parser
from tgpfast.cli.fit import FIT_OPTIONS
from tgpfast.data.column_checks import check_columns
from tgpfast.evaluation.result import Evaluation
from tgpfast.paper.experiments import Settings

NOT_IN_THE_SHELL = {  # parameters of `fit` that the command line does not offer
    "X", "sample_weight", "normalize_weights", "moments", "solver", "one_standard_error",
    "progress",
}  # fmt: skip


def command(name):
    """The parser of one command."""
    (commands,) = (
        a for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction)
    )
    return commands.choices[name]


def options(name):
    """dest -> action, without --help."""
    return {a.dest: a for a in command(name)._actions if a.dest != "help"}


def shown_default(name, dest):
    """What the help of an option says after "default:"."""
    action = options(name)[dest]
    text = action.help % {"default": action.default}
    found = re.search(r"\(default: ([^,)]+)", text)
    assert found, f"tgpfast {name} {action.option_strings}: its help names no default: {text!r}"
    return found[1]


def default_of(function, name):
    return inspect.signature(function).parameters[name].default


# -- the command line -----------------------------------------------------------------------------


@pytest.mark.parametrize(("dest", "name"), FIT_OPTIONS.items())
def test_fit_options_show_the_defaults_of_fit(dest, name):
    default = default_of(tgp.fit, name)
    shown = shown_default("fit", dest)
    assert shown in ("all", "none", "no walls") if default is None else shown == str(default)
    assert options("fit")[dest].default is None  # what is not given is left to `fit`


def test_every_parameter_of_fit_is_an_option_or_known_to_be_missing():
    offered = set(FIT_OPTIONS.values())
    assert offered | NOT_IN_THE_SHELL == set(inspect.signature(tgp.fit).parameters)
    assert not offered & NOT_IN_THE_SHELL
    assert set(FIT_OPTIONS) <= set(options("fit"))


@pytest.mark.parametrize("dest", FIT_OPTIONS)
def test_choices_hold_the_default_and_are_documented(dest):
    """Words that an option takes stand in the docstring of `fit`, or where it points to."""
    action, name = options("fit")[dest], FIT_OPTIONS[dest]
    default, text = default_of(tgp.fit, name), documented(tgp.fit)[name]
    if "see ``accumulate``" in text:
        text = documented(tgp.accumulate)[name]
    if action.choices is not None:
        assert default in action.choices
        missing = [c for c in action.choices if f'"{c}"' not in text and c != "auto"]
        assert missing == []
    elif isinstance(default, str):
        assert action.type(default) == default
        assert default in action.help


def test_other_commands_show_the_defaults_of_what_they_call():
    assert shown_default("warmup", "backend") == default_of(tgp.warmup, "backend")
    settings = {f.name: f.default for f in fields(Settings)}
    for dest, name in (
        ("seeds", "n_seeds"), ("features", "n_features"), ("directions", "n_directions"),
        ("samples", "n_samples"),
    ):  # fmt: skip
        assert int(shown_default("paper", dest)) == settings[name]
        assert options("paper")[dest].default == settings[name]
    for name in ("n_directions", "n_samples", "n_grid"):  # the paper's, as those of evaluate
        assert settings[name] == default_of(tgp.evaluate, name)
    assert settings["n_features"] == tgp.PAPER["n_features"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_with_a_default_shows_it(name):
    for dest, action in options(name).items():
        if action.option_strings and action.default not in (None, False, argparse.SUPPRESS):
            assert shown_default(name, dest) == str(action.default)


def test_backends_are_all_named():
    for name in kernels.BACKENDS:
        assert name in options("warmup")["backend"].help


def test_score_of_one_row_prints_no_error(tmp_path, capsys):
    """One row has no standard error; it is left out, and "nan" is not printed."""
    x = np.random.default_rng(0).standard_normal((50, 2))
    fixed = {"method": "fd", "lam": 10.0, "gamma": "scott", "base": "empirical"}
    tgp.fit(x, n_features=5, frequency_covariance="data", **fixed).save(tmp_path / "model.npz")
    np.save(tmp_path / "one.npy", x[:1])
    assert cli.main(["score", str(tmp_path / "model.npz"), str(tmp_path / "one.npy")]) == 0
    out = capsys.readouterr().out
    assert "nan" not in out
    assert "standard error" not in out
    assert re.search(r"^mean log density  -\d\S*, 1 row$", out, re.MULTILINE)


# -- docstrings -----------------------------------------------------------------------------------


def documented(function):
    """name -> text of the Parameters section of a docstring."""
    lines = inspect.getdoc(function).splitlines()
    if "Parameters" not in lines:
        return {}
    found, names = {}, []
    for line in lines[lines.index("Parameters") + 2 :]:
        head = re.match(r"([*\w]+(?:, [*\w]+)*) : ?(.*)", line)
        if head:
            names = [name.strip("*") for name in head[1].split(", ")]
            found.update(dict.fromkeys(names, head[2]))
        elif line.startswith("    ") or not line.strip():
            for name in names:
                found[name] += " " + line.strip()
        else:  # the next section
            break
    return found


def public_functions():
    """Functions and public methods of what the package exports, and of its pictures."""
    found = {}
    for name in tgp.__all__:
        thing = getattr(tgp, name)
        if inspect.isfunction(thing):
            found[name] = thing
        elif inspect.isclass(thing) and not issubclass(thing, Warning):
            members = inspect.getmembers(thing, callable)
            members = [(k, m) for k, m in members if not k.startswith("_") and m.__doc__]
            found.update({f"{name}.{k}": m for k, m in members})
    found.update(
        (f"plot.{k}", f) for k, f in inspect.getmembers(plot, inspect.isfunction)
        if k in plot.__all__
    )  # fmt: skip
    found["Evaluation.worst"] = Evaluation.worst
    found["check_columns"] = check_columns
    return found


FUNCTIONS = public_functions()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_documented_parameters_exist(name):
    """A docstring names no parameter that the function does not have."""
    parameters = inspect.signature(FUNCTIONS[name]).parameters
    assert set(documented(FUNCTIONS[name])) <= set(parameters)


@pytest.mark.parametrize(
    "function", [tgp.fit, tgp.solve, tgp.accumulate, tgp.evaluate, tgp.fit_groups, check_columns],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_every_parameter_is_documented(function):
    """In an entry of its own, or in that of another parameter."""
    entries = documented(function)
    missing = set(inspect.signature(function).parameters) - set(entries)
    assert [m for m in missing if not any(m in text for text in entries.values())] == []


@pytest.mark.parametrize(
    "function", [tgp.fit, tgp.solve, tgp.accumulate, tgp.evaluate, tgp.fit_groups],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_words_that_are_defaults_are_explained(function):
    """The text of a parameter whose default is a word has that word, or points elsewhere."""
    for name, text in documented(function).items():
        default = default_of(function, name)
        if isinstance(default, str) and "see ``" not in text and default != "auto":
            assert f'"{default}"' in text, (name, default)


def test_fixed_settings_in_the_docstring_of_fit():
    """'fixed settings instead: method="fd", n_features=1000, ...' are those of the code."""
    from tgpfast.pipeline.choosing import LEAST_PILOT_ROWS
    from tgpfast.pipeline.settings import FALLBACK

    text = " ".join(inspect.getdoc(tgp.fit).split())
    words = ", ".join(
        f"{name}={value:g}" if isinstance(value, int | float) else
        f"{name}=None" if value is None else f'{name}="{value}"'
        for name, value in FALLBACK.items()
    )  # fmt: skip
    assert f"fixed settings instead: {words}." in text
    assert f"fewer than {LEAST_PILOT_ROWS} that differ" in text
