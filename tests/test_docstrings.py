"""Docstrings: every example runs, and every public name says what its parameters are."""

import doctest
import importlib
import inspect
import io
import pkgutil
import re
from functools import cached_property

import pytest

import tgpfast as tgp
from tgpfast import datasets, plot, sklearn
from tgpfast.evaluation.result import Evaluation

# modules that compile at import, or run a program
SKIPPED = {"tgpfast.__main__", "tgpfast.kernels._numba", "tgpfast.kernels._cython"}
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


# -- examples --------------------------------------------------------------------------------------


def modules():
    """Every module of the package, imported."""
    found = [tgp]
    for info in pkgutil.walk_packages(tgp.__path__, "tgpfast."):
        if info.name not in SKIPPED:
            found.append(importlib.import_module(info.name))
    return found


def examples(module):
    """The docstrings of a module that have examples."""
    return [test for test in doctest.DocTestFinder().find(module) if test.examples]


def failures(test):
    """What the examples of a docstring print wrongly, as text."""
    text = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    runner.run(test, out=text.write)
    return text.getvalue()


EXAMPLES = {test.name: test for module in modules() for test in examples(module)}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_examples_run(name):
    assert failures(EXAMPLES[name]) == ""


def test_examples_are_found():
    """Those of the package, of functions, of classes and of lazily imported submodules."""
    wanted = {
        "tgpfast", "tgpfast.evaluation.evaluation.evaluate", "tgpfast.pipeline.groups.fit_groups",
        "tgpfast.evaluation.exact_kde.ExactKDE", "tgpfast.paper.datasets",
    }  # fmt: skip
    assert wanted <= set(EXAMPLES)


def test_a_wrong_example_is_seen():
    """Negative control: another result, and an error."""
    parse = doctest.DocTestParser().get_doctest
    planted = ((">>> 1 + 1\n2\n", True), (">>> 1 + 1\n3\n", False), (">>> 1 / 0\n", False))
    for text, is_right in planted:
        assert (failures(parse(text, {}, "planted", None, 0)) == "") is is_right


# -- public names ----------------------------------------------------------------------------------


def entries(text, *sections):
    """Names that a docstring in numpydoc style describes in these sections."""
    lines = inspect.cleandoc(text).splitlines()
    found, current = set(), None
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if re.fullmatch(r"-{3,}", following):
            current = line.strip()
        elif current in sections and re.match(r"[*\w]", line):
            names = line.split(" : ")[0]
            if re.fullmatch(r"[*\w]+(, [*\w]+)*", names):
                found |= {name.strip("* ") for name in names.split(",")}
    return found


def parameters(function):
    """Names of the parameters of a function, without self."""
    names = inspect.signature(function).parameters
    return [name for name in names if name not in ("self", "cls")]


def problems(name, thing, parents=()):
    """What is missing in the docstring of a function, a property or a class with its members.

    parents : the same method of the classes above, which may describe its parameters
    """
    if isinstance(thing, (property, cached_property)):
        return [] if (thing.__doc__ or "").strip() else [f"{name}: no docstring"]
    if not (thing.__doc__ or "").strip():
        return [f"{name}: no docstring"]
    if not inspect.isclass(thing):
        missing = set(parameters(thing))
        for function in (thing, *parents):
            missing -= entries(function.__doc__ or "", "Parameters")
        return [f"{name}: {parameter}" for parameter in sorted(missing)]
    found = []
    if "__init__" in vars(thing):
        known = entries(thing.__doc__, "Parameters", "Attributes")
        missing = set(parameters(thing.__init__)) - known
        found = [f"{name}: {parameter}" for parameter in sorted(missing)]
    for member in dir(thing):
        if member.startswith("_") or not _is_ours(thing, member):
            continue
        value = inspect.getattr_static(thing, member)
        value = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        if inspect.isfunction(value) or isinstance(value, (property, cached_property)):
            above = [vars(c)[member] for c in thing.__mro__[1:] if member in vars(c)]
            found += problems(f"{name}.{member}", value, [getattr(f, "__func__", f) for f in above])
    return found


def _is_ours(kind, member):
    """Whether a class of this package defines the member, not Python or numpy."""
    owner = next(c for c in kind.__mro__ if member in vars(c))
    return owner.__module__.startswith("tgpfast")


def public():
    """Name -> function or class of the package, its pictures and its toy data."""
    found = {name: getattr(tgp, name) for name in tgp.__all__}
    found |= {f"plot.{name}": getattr(plot, name) for name in plot.__all__}
    found |= {f"sklearn.{name}": getattr(sklearn, name) for name in sklearn.__all__}
    found |= {f"datasets.{name}": f for name, f in datasets.GENERATORS.items()}
    found["Evaluation"] = Evaluation
    skipped = {"GroupedDensity"}  # made by `fit_groups`; its attributes are documented
    return {
        name: thing for name, thing in found.items()
        if inspect.isfunction(thing) or (inspect.isclass(thing) and name not in skipped)
    } | {f"GroupedDensity.{k}": v for k, v in vars(tgp.GroupedDensity).items()
         if not k.startswith("_") and inspect.isfunction(v)}  # fmt: skip


PUBLIC = public()


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_public_names_are_documented(name):
    """A docstring for each, and an entry for each parameter."""
    found = problems(name, PUBLIC[name])
    assert found == []


class Planted:
    """Has a docstring.

    Parameters
    ----------
    a : int
        Documented.
    """

    def __init__(self, a, b):
        self.a, self.b = a, b

    def method(self, c, d):
        """Do something.

        Parameters
        ----------
        c : int
        **options

        Returns
        -------
        d : int
        """

    @property
    def silent(self):
        return 0


Planted.__module__ = "tgpfast.planted"


def test_missing_documentation_is_seen():
    """Negative control: a parameter of the class, of a method, and a property without words."""
    assert problems("Planted", Planted) == [
        "Planted: b", "Planted.method: d", "Planted.silent: no docstring",
    ]  # fmt: skip
