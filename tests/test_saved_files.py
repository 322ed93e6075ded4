"""Files that version 0.1.0 saved before its modules moved into folders still load and agree.

``saved_files/expected.json`` holds what each object gave when it was saved.
"""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import tgpfast as tgp

FOLDER = Path(__file__).parent / "saved_files"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())
NAMES = sorted(path.stem for path in FOLDER.glob("*.npz"))


def answer(name, saved):
    """What the saved object gives at the rows of the fixture."""
    if isinstance(saved, tgp.Statistics):
        return saved.sum_phi
    if isinstance(saved, tgp.Spectrum):
        return saved.statistics(tgp.Features.draw(7, 0.8, np.eye(2), seed=1)).sum_phi
    rows = np.array(EXPECTED["rows_5" if name.endswith("five_columns") else "rows"])
    return (saved["a"] if isinstance(saved, tgp.GroupedDensity) else saved).log_density(rows)


def test_every_kind_of_file_is_in_the_fixture():
    assert len(NAMES) == 16
    assert {n.partition("_")[0] for n in NAMES} == {"density", "groups", "spectrum", "statistics"}


@pytest.mark.parametrize("name", NAMES)
def test_file_loads_and_agrees(name):
    saved = tgp.load(FOLDER / f"{name}.npz")
    np.testing.assert_allclose(answer(name, saved), EXPECTED[name], rtol=1e-7, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_loaded_object_survives_pickle_and_another_save(name, tmp_path):
    saved = pickle.loads(pickle.dumps(tgp.load(FOLDER / f"{name}.npz")))
    saved.save(tmp_path / "again.npz")
    np.testing.assert_array_equal(
        answer(name, tgp.load(tmp_path / "again.npz")), answer(name, saved)
    )


def test_model_with_statistics_can_still_be_updated():
    model = tgp.load(FOLDER / "density_with_statistics.npz")
    rows = np.random.default_rng(0).normal(size=(50, 2))
    assert model.update(rows).settings["n_rows"] == model.settings["n_rows"] + 50
