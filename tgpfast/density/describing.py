"""How densities show themselves: one line, a summary, a page of a notebook, a picture."""

from __future__ import annotations

import base64
import copy
import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..features.random import name_kernels
from ..validation import Array, Seed

LONGEST_BASE_TEXT = 80  # characters of a representation that is shown whole
NAMED_COLUMNS = 6  # columns that one line names
GRID_COLUMNS = 3  # up to which integrals over the other columns of a joint density are cheap
REPEATED_SHARE = 0.01  # of rows that repeat another row or value, from which on they are named
PICTURE_DPI = 70  # dots per inch of a picture in a notebook
METHOD_WORDS = {
    "fd": "Fisher divergence", "ncfd": "noise-conditional Fisher divergence",
    "fvpd": "variational predictive density", "map": "maximum a posteriori",
    "base": "the base alone",
}  # fmt: skip


class DescribedDensity:
    """What every density can show of itself."""

    def plot(self, X: Any = None, **options: Any) -> Any:
        """A picture: a curve of one column, labeled contours of two, pairs of more.

        Parameters
        ----------
        X : rows, default None
            Data to show with the density.
        **options
            Those of ``tgpfast.plot.density_curve``, ``region_contours`` or ``pairs``.

        Returns
        -------
        matplotlib Figure

        Raises
        ------
        ImportError
            matplotlib is missing.
        """
        return draw_picture("density", self, X, **options)

    def credible_band(self, Y: Any, *, level: float = 0.9, seed: Seed = 0) -> Any:
        """A credible band, which only joint densities without discrete columns have.

        Parameters
        ----------
        Y, level, seed
            As for ``Density.credible_band``.

        Raises
        ------
        ValueError
            Always: no posterior of this density is known.
        """
        raise ValueError(
            "credible_band serves the joint density of columns that are not discrete; fit all "
            'columns with method="fvpd" and lam=, and take the band of that model'
        )

    def median(self) -> Array:
        """Median of every column, (d,), in the units of the data.

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> x = np.random.default_rng(0).normal(5.0, 2.0, size=(1000, 2))
        >>> model = tgpfast.fit(x, method="fd", lam=10.0, n_features=50, base="empirical")
        >>> model.median().round(0).tolist()
        [5.0, 5.0]
        """
        return np.atleast_1d(self.quantile(0.5))  # type: ignore[attr-defined]

    def summary(self) -> str:
        """What the density is, what it was learned from and how far to trust it.

        Returns
        -------
        str
            A line for each fact. The normalizer is computed where it is not known yet.

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> x = np.random.default_rng(0).normal(5.0, 2.0, size=(1000, 1))
        >>> model = tgpfast.fit(x, method="fd", lam=10.0, n_features=50, base="empirical")
        >>> print(model.summary())
        density     of 1 column
        method      fd, Fisher divergence
        exponent    50 features, gaussian kernel, bandwidth ..., lambda 10
        ...
        """
        joint: Any = getattr(self, "joint", self)
        joint.log_normalizer  # noqa: B018 - computes it
        return list_facts(self._collect_facts())

    def _collect_facts(self) -> dict[str, str]:
        return collect_facts(self)

    def _repr_html_(self) -> str:
        """A table of facts, beside a picture where that is cheap."""
        return f"<div>{tabulate_facts(self._collect_facts())}{_inline_picture(self)}</div>"


class DerivedDensity(DescribedDensity):
    """What a density takes from the joint density that it is computed from."""

    joint: Any

    @property
    def method(self) -> str:
        """How the joint density was learned."""
        return str(self.joint.method)

    @property
    def settings(self) -> dict[str, Any]:
        """The choices behind the joint density, and how they were made."""
        return self.joint.settings

    @property
    def log_normalizer(self) -> Any:
        """`Normalizer` of the joint density: its log Z with the error."""
        return self.joint.log_normalizer


def list_facts(facts: dict[str, str]) -> str:
    """A line for each fact."""
    width = max(map(len, facts)) + 2
    return "\n".join(f"{name:<{width}}{text}" for name, text in facts.items())


def tabulate_facts(facts: dict[str, str]) -> str:
    """A table of HTML with a row for each fact."""
    from html import escape

    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(text)}</td></tr>'
        for name, text in facts.items()
    )
    return f"<table>{rows}</table>"


def collect_facts(model: Any) -> dict[str, str]:
    """What matters of a density, in words. The normalizer is left out while it is not known.

    Parameters
    ----------
    model : Density or MarginalDensity
    """
    joint = getattr(model, "joint", model)
    d, names, settings = model.dimension, model.table.columns, joint.settings
    kind = "density" if joint is model else "marginal"
    columns = f"of {d} column{'s' * (d != 1)}" + (f": {', '.join(names)}" if names else "")
    facts = {
        kind: columns, "given": _pairs_text(settings.get("given", {})),
        "joint": "" if joint is model else f"of {joint.dimension} columns",
        "method": f"{joint.method}, {METHOD_WORDS.get(joint.method, 'learned')}",
        "exponent": "" if joint.method == "base" else _exponent_text(joint),
        "base": shorten_base(repr(joint.base), joint.base.dimension),
        "rows": _rows_text(settings), "scale": _scale_text(settings),
        "automatic": ", ".join(settings.get("auto", [])), "held out": _gain_text(joint),
        "verified": _verification_text(settings.get("verification")),
        "beware": _notes_text(settings.get("column_notes", [])),
        "repeats": _repeats_text(joint.diagnostics.get("repeats")),
        "solver": _solver_text(joint.diagnostics), "normalizer": _normalizer_text(joint),
    }  # fmt: skip
    return {name: text for name, text in facts.items() if text}


def describe_briefly(model: Any) -> str:
    """The one line of a `Density`: method, features, base, rows, columns, and how sure it is."""
    parts = [f"method={model.method!r}", f"d={model.dimension}"]
    name = type(model.base).__name__
    if model.method == "base":
        parts.append(f"{name} alone")
    else:
        features = model.features
        parts += [
            f"n_features={features.n_features}", f"kernel={features.kernel!r}",
            f"bandwidth={features.bandwidth:.6g}", f"base={name}",
        ]  # fmt: skip
    n_rows, names = model.settings.get("n_rows"), model.table.columns
    if n_rows is not None:
        parts.append(f"n_rows={n_rows:,}".replace(",", "_"))
    if names is not None:
        more = ", ..." * (len(names) > NAMED_COLUMNS)
        parts.append(f"columns=[{', '.join(map(repr, names[:NAMED_COLUMNS]))}{more}]")
    if "given" in model.settings:
        parts.append(f"given={model.settings['given']}")
    known = model.integrator.known_normalizer
    if known is not None:
        parts.append(f"log_z_error={known.standard_error:.1g}" + ", unreliable" * known.is_poor)
    return f"Density({', '.join(parts)})"


def _exponent_text(model: Any) -> str:
    lam, features = model.settings.get("lam"), model.features
    return (
        f"{features.n_features:,} features, {name_kernels(features.kernel)} kernel, "
        f"bandwidth {features.bandwidth:.4g}" + (f", lambda {lam:.4g}" if lam else "")
    )


def _normalizer_text(model: Any) -> str:
    """The known normalizer in words; empty while it is not known."""
    known = model.integrator.known_normalizer
    if known is None:
        return ""
    if known.method == "exact":
        return "exact"
    text = f"log Z = {known.value:.6g} (error {known.standard_error:.1g}, {known.method})"
    return text + ("; UNRELIABLE: too few points carry the density" if known.is_poor else "")


def shorten_base(text: str, dimension: int) -> str:
    """The representation of a base; its class where every number is listed.

    Examples
    --------
    >>> shorten_base("GaussianBase(mean=[" + 40 * "0.0, " + "])", 40)
    'GaussianBase(d=40)'
    """
    return text if len(text) <= LONGEST_BASE_TEXT else f"{text.partition('(')[0]}(d={dimension})"


def _scale_text(settings: dict[str, Any]) -> str:
    """How columns are scaled, and bent."""
    scale, bent = str(settings.get("scale", "")), settings.get("coordinates", "plain")
    is_said = bent == "plain" or (scale == "gaussianize" and bent == "gaussianized")
    return scale if is_said else f"{scale}, {bent}"


def _rows_text(settings: dict[str, Any]) -> str:
    n_rows, n = settings.get("n_rows"), settings.get("n")
    if n_rows is None:
        return ""
    weights = settings.get("weights", "none")
    return f"{n_rows:,}" + (f", which count as {n:,.6g} ({weights})" if weights != "none" else "")


def _gain_text(model: Any) -> str:
    """Held-out gain of the tilt; of the best one that was tried where the base alone was taken."""
    settings = model.settings
    gain, error = settings.get("held_out_gain"), settings.get("held_out_gain_error")
    if gain is None or error is None or not math.isfinite(gain + error):
        return ""
    subject = "the best tilt would gain" if model.method == "base" else "the tilt gains"
    return f"{subject} {gain:.2g} nats a row over the base (error {error:.1g})"


def _verification_text(found: dict[str, Any] | None) -> str:
    if not found or "ks" not in found:
        return ""
    words = "passed" if found.get("passed") else "FAILED"
    return f"{words}: largest KS of a column {found['ks']:.2g}, allowed {found['ks_allowed']:.2g}"


def _notes_text(notes: list[dict[str, Any]]) -> str:
    """Columns that a continuous density does not suit, with the reason."""
    return ", ".join(
        f"{note['column'] if note['name'] is None else note['name']} is "
        f"{note['kind'].replace('_', ' ')}"
        for note in notes
    )


def _repeats_text(found: dict[str, Any] | None) -> str:
    """Repeated rows and frequent values; empty where there are hardly any."""
    if not found:
        return ""
    repeated = 1.0 - found["n_distinct"] / found["n_rows"]
    words = [f"{repeated:.0%} of the rows repeat another"] if repeated >= REPEATED_SHARE else []
    for k, one in enumerate(found["columns"]):
        if one["top_share"] >= REPEATED_SHARE:
            name = k if one["name"] is None else one["name"]
            words.append(f"{one['top_share']:.0%} have {name} = {one['top_value']:.6g}")
    return ", ".join(words[:NAMED_COLUMNS]) + ", ..." * (len(words) > NAMED_COLUMNS)


def _solver_text(diagnostics: dict[str, Any]) -> str:
    """The solver and its diagnostics; empty for a base alone, which is not solved for."""
    name = diagnostics.get("solver", "none")
    rest = _pairs_text({k: v for k, v in diagnostics.items() if k != "solver"})
    return "" if name == "none" else ", ".join(part for part in (name, rest) if part)


def _pairs_text(pairs: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in pairs.items()
        if isinstance(value, str | int | float)
    )


def _inline_picture(model: Any) -> str:
    """An image element with its data; empty without matplotlib, and for one or two columns of a
    density of many, which would take long."""
    if model.dimension < GRID_COLUMNS < getattr(model, "joint", model).dimension:
        return ""
    try:
        figure = copy.copy(model).plot(quick=True)  # a copy: ``model.sampling`` stays as it is
    except ImportError:
        return ""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=PICTURE_DPI)
    data = base64.b64encode(file.getvalue()).decode("ascii")
    return f'<img alt="density" src="data:image/png;base64,{data}">'


_plotters: dict[str, Callable[..., Any]] = {}


def register_plotter(kind: str, draw: Callable[..., Any]) -> None:
    """Set the function behind the ``plot`` of a kind of object: pictures build on this folder.

    Parameters
    ----------
    kind : {"density", "region"}
    draw : callable
        Takes the object, the rows to show with it, and options.
    """
    _plotters[kind] = draw


def draw_picture(kind: str, *arguments: Any, **options: Any) -> Any:
    """The picture that the function registered for this kind draws."""
    if kind not in _plotters:
        raise ImportError("tgpfast.plot draws pictures: import tgpfast first")
    return _plotters[kind](*arguments, **options)
