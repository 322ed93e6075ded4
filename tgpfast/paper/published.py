"""The figures that the paper prints in its two tables, and the data sets that it uses.

Every number in this module is copied from the paper; this package computed none of them. KS and WD
are multiplied by 100, as in the paper. The paper says that its ten sets are from UCI. The sources
below were identified by name and size; each says where that identification is uncertain.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

# method of `fit` -> name in the paper, in the order of its tables
METHOD_NAMES = {"map": "MAP", "fd": "FD", "ncfd": "NCFD", "fvpd": "FVPD"}

Pair = tuple[float, float]  # (KS, WD)


@dataclass(frozen=True)
class PublishedSet:
    """One of the ten data sets of the paper's tables, with the figures that the paper prints.

    Attributes
    ----------
    name : str
        Name in the paper.
    n_rows, n_columns : int
        Size in the paper.
    median, mean : dict of str to (float, float)
        Method -> (KS, WD) x100 over 500 random directions.
    seconds : dict of str to float
        Method -> total run time on the paper's machine.
    source : str
        Where to find the original data.
    aliases : tuple of str
        File stems that mean this set, in lower case with underscores.
    """

    name: str
    n_rows: int
    n_columns: int
    median: dict[str, Pair]
    mean: dict[str, Pair]
    seconds: dict[str, float]
    source: str
    aliases: tuple[str, ...]


@dataclass(frozen=True)
class Illustration:
    """One of the four data sets that the paper shows only in figures."""

    name: str
    source: str
    aliases: tuple[str, ...]
    generated: bool = False  # True: this package draws the rows, no file is needed


Entry = TypeVar("Entry", PublishedSet, Illustration)


def _published_set(
    name: str,
    size: tuple[int, int],
    median: tuple[Pair, ...],
    mean: tuple[Pair, ...],
    seconds: tuple[float, ...],
    source: str,
    aliases: tuple[str, ...],
) -> PublishedSet:
    """A `PublishedSet` from tuples in the order of METHOD_NAMES."""
    return PublishedSet(
        name=name,
        n_rows=size[0],
        n_columns=size[1],
        median=dict(zip(METHOD_NAMES, median, strict=True)),
        mean=dict(zip(METHOD_NAMES, mean, strict=True)),
        seconds=dict(zip(METHOD_NAMES, seconds, strict=True)),
        source=source,
        aliases=aliases,
    )


_UCI = "UCI Machine Learning Repository, data set"

SETS: dict[str, PublishedSet] = {  # in the paper's order; the keys are the names it prints
    entry.name: entry
    for entry in (
        _published_set(
            "Bikeshare",
            (11_122, 12),
            ((2.25, 3.60), (2.25, 3.82), (2.29, 3.81), (2.28, 3.70)),
            ((2.78, 4.74), (2.73, 4.67), (2.70, 4.57), (2.62, 4.47)),
            (342.0, 0.18, 3.6, 0.18),
            f"{_UCI} 'Bike Sharing' (hourly file; the paper's rows are 64 % of it)",
            ("bikeshare", "bike_share", "bikesharing", "bike_sharing"),
        ),
        _published_set(
            "MIMIC2",
            (15_684, 17),
            ((1.78, 2.78), (1.78, 2.84), (1.79, 2.88), (1.70, 2.76)),
            ((2.17, 3.49), (1.98, 3.13), (2.01, 3.23), (1.96, 3.12)),
            (342.0, 0.31, 9.2, 0.31),
            "probably PhysioNet, 'MIMIC-II Clinical Database' (access by agreement; the paper does "
            "not say how its 17 columns were made)",
            ("mimic2", "mimic_2", "mimicii", "mimic_ii"),
        ),
        _published_set(
            "MAGIC",
            (19_020, 10),
            ((7.05, 14.1), (5.45, 12.1), (5.44, 11.9), (5.34, 11.9)),
            ((7.44, 16.1), (6.04, 13.8), (5.94, 13.3), (5.88, 13.5)),
            (342.0, 0.28, 5.1, 0.28),
            f"{_UCI} 'MAGIC Gamma Telescope' (without the class)",
            ("magic", "magic04", "magic_gamma", "magic_gamma_telescope"),
        ),
        _published_set(
            "HIGGS",
            (50_000, 28),
            ((0.67, 1.21), (0.60, 1.03), (0.66, 1.21), (0.65, 1.19)),
            ((0.73, 1.38), (0.67, 1.24), (0.74, 1.43), (0.72, 1.37)),
            (342.0, 0.56, 7.3, 0.56),
            f"{_UCI} 'HIGGS' (50,000 of its 11,000,000 rows, without the class; the paper does "
            "not say which rows)",
            ("higgs",),
        ),
        _published_set(
            "Credit",
            (182_276, 30),
            ((2.12, 4.62), (2.10, 4.56), (2.05, 4.42), (2.01, 4.46)),
            ((2.32, 5.06), (2.29, 4.93), (2.24, 4.83), (2.23, 4.85)),
            (342.0, 2.3, 30.0, 2.3),
            "probably Kaggle, data set 'Credit Card Fraud Detection' of the Université Libre de "
            "Bruxelles (without the class; the paper's rows are 64 % of it)",
            ("credit", "creditcard", "credit_card", "credit_card_fraud", "credit_fraud"),
        ),
        _published_set(
            "Power",
            (2_049_280, 7),
            ((11.7, 23.1), (11.3, 23.0), (11.0, 21.4), (11.4, 23.0)),
            ((12.7, 26.0), (12.2, 25.4), (11.9, 24.6), (12.0, 25.0)),
            (360.0, 22.0, 270.0, 22.0),
            f"{_UCI} 'Individual Household Electric Power Consumption' (the seven measured "
            "columns, rows without a gap)",
            (
                "power",
                "household_power",
                "household_power_consumption",
                "individual_household_electric_power_consumption",
            ),
        ),
        _published_set(
            "GasMod",
            (3_843_160, 18),
            ((7.17, 11.3), (6.79, 11.1), (7.05, 11.9), (6.91, 10.8)),
            ((7.71, 12.9), (7.33, 12.8), (7.43, 13.0), (7.32, 12.2)),
            (384.0, 43.0, 588.0, 43.0),
            f"{_UCI} 'Gas sensor array temperature modulation' (the paper does not say which 18 "
            "columns and which rows)",
            (
                "gasmod",
                "gas_mod",
                "gas_modulation",
                "gas_temperature_modulation",
                "gas_sensor_array_temperature_modulation",
            ),
        ),
        _published_set(
            "GasMix",
            (4_208_261, 16),
            ((7.80, 13.7), (8.23, 14.0), (8.49, 13.9), (8.43, 13.5)),
            ((8.39, 15.2), (8.70, 16.1), (8.85, 16.1), (8.64, 15.2)),
            (390.0, 45.0, 600.0, 45.0),
            f"{_UCI} 'Gas sensor array under dynamic gas mixtures' (the file of ethylene and CO, "
            "its 16 sensors)",
            (
                "gasmix",
                "gas_mix",
                "gas_mixtures",
                "ethylene_co",
                "gas_sensor_array_under_dynamic_gas_mixtures",
            ),
        ),
        _published_set(
            "HARTH",
            (6_461_328, 6),
            ((10.1, 21.4), (10.1, 21.2), (10.1, 21.9), (10.1, 21.1)),
            ((10.3, 21.8), (10.2, 21.7), (10.3, 21.7), (10.2, 21.4)),
            (420.0, 68.0, 780.0, 68.0),
            f"{_UCI} 'HARTH' (Human Activity Recognition Trondheim; the six accelerations of all "
            "subjects)",
            ("harth",),
        ),
        _published_set(
            "Twitter",
            (14_262_515, 3),
            ((6.00, 12.0), (6.15, 12.4), (5.72, 13.2), (5.87, 12.3)),
            ((6.38, 12.6), (6.77, 13.3), (6.44, 13.9), (6.40, 12.8)),
            (480.0, 150.0, 1980.0, 150.0),
            f"{_UCI} 'Twitter Geospatial Data' (the paper does not say which three columns)",
            ("twitter", "twitter_geospatial", "twitter_geospatial_data"),
        ),
    )
}

ILLUSTRATIONS: dict[str, Illustration] = {
    entry.name: entry
    for entry in (
        Illustration(
            "MNIST-2D",
            "The MNIST database of handwritten digits (LeCun, Cortes, Burges): the 60,000 training "
            "images on their first two principal components",
            ("mnist_pca2", "mnist_2d", "mnist2d"),
        ),
        Illustration(
            "CA House",
            "California housing of 1990 (Pace and Barry, 1997), StatLib archive, 'houses.zip'; "
            "also scikit-learn's fetch_california_housing: latitude and longitude",
            ("california_housing_latlon", "ca_house", "california_housing"),
        ),
        Illustration("XO", "generated by this package", (), generated=True),
        Illustration("Smile", "generated by this package", (), generated=True),
    )
}


def find_entry(stem: str, entries: Mapping[str, Entry]) -> Entry | None:
    """The entry with the longest alias that a file name matches, or None.

    A stem matches an alias if it equals the alias, or continues it with a digit, a hyphen or an
    underscore: ``higgs``, ``HIGGS_18k`` and ``magic04`` match, ``magical`` does not. Compare
    ``n_rows`` and ``n_columns`` before comparing results with the paper.

    Parameters
    ----------
    stem : str
        File name without folder and extension.
    entries : mapping of str to PublishedSet or Illustration
        SETS or ILLUSTRATIONS.
    """
    text = re.sub(r"[\s-]", "_", stem.strip().lower())
    matches = [
        (len(alias), name)
        for name, entry in entries.items()
        for alias in entry.aliases
        if re.fullmatch(re.escape(alias) + r"(_+[^_].*|[0-9].*)?", text)
    ]
    return entries[max(matches)[1]] if matches else None
