"""Toy data of the paper under a short name: ``tgpfast.datasets.two_moons(1000)``."""

from .paper.datasets import *  # noqa: F403
