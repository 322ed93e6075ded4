"""Samples of a density: which method draws, and how good the sample is.

From the base where the density is its base alone; exact from grids in one to three dimensions; by
rejection of fresh draws; or by Langevin chains. Samples depend on the seed alone, never on the
number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..bases.domain import domain_of
from ..runtime import memory
from ..runtime.progress import Progress
from ..runtime.warnings import PoorSampleWarning, warn
from ..validation import Array, sampling_generator
from .draws.annealing import MOVES_PER_RISE, AnnealedChains
from .draws.proposal import QUADRATURE_DIMENSIONS
from .draws.rejection import sample_by_rejection
from .normalizing.integration import Integrator

SAMPLING_METHODS = ("auto", "grid", "importance", "mala")
LEAST_ACCEPTANCE = 0.005  # share of draws kept below which chains are cheaper
MOST_DRAWS_PER_ROW = 10_000  # of method="importance", which gives up beyond
LEAST_EFFECTIVE_ROWS = 0.5  # effective rows, as a share of those asked for, below which we warn
LEAST_SAMPLING_CHAINS, MOST_SAMPLING_CHAINS = 4_096, 8_192  # more rows come from the same chains
BURN_IN_STEPS = 100  # steps of chains before the first draw
THINNING_STEPS = 10  # steps of chains between draws
BYTES_PER_VALUE = 16  # of a sample: the draws, and their values in the units of the data
LEAST_MOVES = 0.2  # share of the steps of chains that must be accepted


@dataclass(frozen=True)
class SamplingReport:
    """How a sample was drawn, and how good it is.

    Attributes
    ----------
    method : {"base", "grid", "importance", "mala"}
        "base" where the density is its base alone.
    effective_sample_size : float or None
        Number of independent rows that the sample is worth; for chains, effective number of
        independent ancestors, which bounds the error of mode weights.
    acceptance_rate : float or None
        Share of the draws, or of the steps of chains, that was accepted.
    n_chains, n_steps : int or None
        Chains of "mala" and their steps.
    """

    method: str
    effective_sample_size: float | None = None
    acceptance_rate: float | None = None
    n_chains: int | None = None
    n_steps: int | None = None


def draw_sample(
    integrator: Integrator, n: int, *, method: str, seed: int, progress: bool = False
) -> tuple[Array, SamplingReport]:
    """n rows in the model's coordinates and how they were drawn.

    method : one of SAMPLING_METHODS; the caller has checked it
    """
    memory.check(
        BYTES_PER_VALUE * n * integrator.base.dimension, f"a sample of {n:,} rows",
        "draw fewer rows at a time, each time with another seed",
    )  # fmt: skip
    rng = sampling_generator(seed)
    d = integrator.base.dimension
    if integrator.tilt.is_zero and method == "auto":
        return integrator.base.draw(n, rng), SamplingReport("base", float(n))
    if method == "grid" and not integrator.uses_quadrature:
        raise ValueError(
            f'method="grid" draws in at most {QUADRATURE_DIMENSIONS} dimensions, and this density '
            f'has {d}; use "importance" or "mala"'
        )
    if integrator.uses_quadrature and method in ("auto", "grid"):
        rows, effective = integrator.quadrature.draw(n, rng)
        return rows, SamplingReport("grid", effective)
    if method in ("auto", "importance"):
        least_rate = LEAST_ACCEPTANCE if method == "auto" else 1.0 / MOST_DRAWS_PER_ROW
        found = draw_by_importance(integrator, n, rng, least_rate=least_rate, progress=progress)
        if found is not None:
            return found
        if method == "importance":
            raise ValueError(
                'method="importance" would need more than '
                f"{MOST_DRAWS_PER_ROW:,} draws for every row; use method=\"mala\", or raise lam"
            )
    return draw_by_chains(integrator, n, rng, progress=progress)


def draw_by_importance(
    integrator: Integrator, n: int, rng: np.random.Generator, *, least_rate: float,
    progress: bool = False,
) -> tuple[Array, SamplingReport] | None:  # fmt: skip
    """Rows kept from weighted draws; None where a smaller share than ``least_rate`` is kept."""
    proposal = integrator.proposal

    def propose(m: int, rng: np.random.Generator) -> tuple[Array, Array]:
        x = proposal.draw(m, rng)
        return x, proposal.log_weights(integrator.tilt, x, integrator.threads)

    found = sample_by_rejection(propose, n, rng, least_rate=least_rate, progress=progress)
    if found is None:
        return None
    rows, effective, rate = found
    if effective < LEAST_EFFECTIVE_ROWS * n:
        warn(
            f"the {n:,} rows drawn are worth only {effective:.3g} independent rows, because some "
            "repeat: few draws fall where the density is large. Raise lam or gamma",
            PoorSampleWarning,
        )
    return rows, SamplingReport("importance", effective, rate)


def draw_by_chains(
    integrator: Integrator, n: int, rng: np.random.Generator, *, progress: bool = False
) -> tuple[Array, SamplingReport]:
    """Rows from parallel Langevin chains that are annealed from the base to the density.

    Their step size is tuned before the first draw is kept.
    """
    n_chains = min(max(n, LEAST_SAMPLING_CHAINS), MOST_SAMPLING_CHAINS)
    rounds = -(-n // n_chains)
    chains = AnnealedChains(integrator.tilt, integrator.base, integrator.threads, n_chains, rng)
    out = np.empty((rounds * n_chains, integrator.base.dimension))
    with Progress(progress, "steps", None) as bar:

        def move(n_steps: int, *, tune: bool) -> None:
            for _ in range(n_steps):
                chains.step(tune=tune)
                bar.add(1)

        while not chains.is_annealed:
            chains.raise_inverse_temperature()
            move(MOVES_PER_RISE, tune=True)
        move(BURN_IN_STEPS, tune=True)
        chains.n_accepted = chains.n_tried = 0
        for done in range(rounds):
            move(THINNING_STEPS, tune=False)
            out[done * n_chains : (done + 1) * n_chains] = chains.states.w
    rate, ancestors = chains.n_accepted / chains.n_tried, chains.n_effective_ancestors
    _warn_of_chains(n, rate, ancestors)
    report = SamplingReport("mala", min(ancestors, float(n)), rate, n_chains, chains.n_steps)
    rows = chains.gaussian.unwhiten(out[rng.permutation(len(out))[:n]])
    return domain_of(integrator.base).wrap(rows), report


def _warn_of_chains(n: int, rate: float, ancestors: float) -> None:
    if rate < LEAST_MOVES:
        warn(
            f"MALA accepted only {rate:.0%} of its steps, so that its chains hardly move and the "
            "sample is not to be trusted; raise lam or gamma",
            PoorSampleWarning,
        )
    elif ancestors < LEAST_EFFECTIVE_ROWS * n:
        warn(
            f"the {n:,} rows come from only {ancestors:.0f} independent chains: the shares of "
            f"separate modes are as uncertain as in a sample of {ancestors:.0f} rows. Raise lam or "
            "gamma",
            PoorSampleWarning,
        )
