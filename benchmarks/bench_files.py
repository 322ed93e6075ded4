"""Files: seconds a row of reading alone, and a pass over one against the slower of its halves."""

import functools
import importlib
import tempfile
from pathlib import Path

import numpy as np

import tgpfast
from tgpfast.data.blocks import Blocks

from . import measure

ROWS, DIMENSION, FEATURES = 500_000, 6, 40


class Files:
    params = (["npy", "csv", "parquet"],)
    param_names = ("kind",)
    timeout = 300  # the first compilation by Numba

    def setup(self, kind):
        measure.require("numba", 2)
        x = measure.normal_rows(ROWS, DIMENSION)
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, f"rows.{kind}")
        if kind == "npy":
            np.save(self.path, x.astype(np.float32))
        elif kind == "csv":
            np.savetxt(self.path, x, delimiter=",", fmt="%.9g")
        else:
            self.write_parquet(x)
        self.x = Blocks(self.path).whole()
        self.features = tgpfast.Features.draw(FEATURES, 0.5, np.eye(DIMENSION), seed=0)
        self.run(self.path)  # compiles

    def teardown(self, kind):
        self.folder.cleanup()

    def write_parquet(self, x):
        try:
            arrow, parquet = (importlib.import_module(n) for n in ("pyarrow", "pyarrow.parquet"))
        except ImportError as error:
            raise NotImplementedError("pyarrow is not installed") from error
        table = arrow.table({f"x{k}": column for k, column in enumerate(x.T.copy())})
        parquet.write_table(table, self.path, row_group_size=125_000)

    def read(self):
        for _ in Blocks(self.path):
            pass

    def run(self, rows):
        tgpfast.accumulate(
            rows, self.features, engine="direct", precision="float64", n_threads=1
        )

    def track_seconds_per_row_read(self, *_):
        return measure.take_turns([measure.timed(self.read)], 15, budget=10.0)[0] / ROWS

    track_seconds_per_row_read.unit = "s/row"

    def track_pass_against_the_slower(self, *_):
        sides = [self.read, *(functools.partial(self.run, rows) for rows in (self.x, self.path))]
        reading, computing, both = measure.take_turns(
            [measure.timed(side) for side in sides], 15, budget=20.0
        )
        return both / max(reading, computing)

    track_pass_against_the_slower.unit = "pass / slower of reading and computing"

    def peakmem_pass(self, *_):
        self.run(self.path)
