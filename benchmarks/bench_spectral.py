"""The spectral engine: each line of its table of figures, sized down; seconds a row and error."""

import tgpfast

from . import measure

N_FEATURES = 500
# of the rows of a figure; enough of them that transforms are taken to evaluate a model
SHARE = {"statistics": 0.05, "fvpd": 0.4, "point": 0.3}
SYNTHETIC = [key for key, case in measure.SPECTRAL_CASES.items() if not case.data]
REAL = [key for key, case in measure.SPECTRAL_CASES.items() if case.data]


class _Case:
    param_names = ("case",)
    timeout = 300

    def setup(self, key):
        tgpfast.warmup()
        case = measure.SPECTRAL_CASES[key]
        try:
            self.made = measure.SpectralRun(case, N_FEATURES, SHARE[case.kind])
        except FileNotFoundError as error:
            raise NotImplementedError(str(error)) from error
        self.made.run()  # the waves of FVPD are made once

    def track_seconds_per_row(self, *_):
        side = measure.timed(self.made.run, at_least=0.05)
        return measure.take_turns([side], 3, budget=3.0)[0] / self.made.rows

    track_seconds_per_row.unit = "s/row"

    def track_limit_ratio(self, *_):
        """How many times faster than the limit of the direct method."""
        made = self.made
        sides = [measure.timed(run) for run in (made.run, made.limit)]
        ours, limit = measure.take_turns(sides, 3, budget=3.0)
        return limit / made.limit_rows / (ours / made.rows)

    track_limit_ratio.unit = "times faster"

    def track_error(self, *_):
        """Of F / n, or of log densities over the largest."""
        return self.made.error(self.made.run())

    track_error.unit = "error"

    def peakmem_run(self, *_):
        self.made.run()


class Spectral(_Case):
    params = (SYNTHETIC,)


class SpectralRealData(_Case):
    """Skipped unless TGPFAST_DATA says where the data are."""

    params = (REAL,)
