"""Fresh processes: importing tgpfast against numpy and scipy, and the first call."""

from . import measure


class Import:
    timeout = 120

    def track_import_ratio(self):
        ours, theirs = measure.take_turns(
            [
                lambda: measure.import_seconds(measure.IMPORT_OURS),
                lambda: measure.import_seconds(measure.IMPORT_RIVAL),
            ],
            5,
        )
        return ours / theirs

    track_import_ratio.unit = "time / numpy and scipy.linalg"


class FirstCall:
    params = (["numba", "cython"],)
    param_names = ("backend",)
    timeout = 120

    def setup(self, backend):
        measure.require(backend, 2)
        measure.first_call_seconds(backend)  # fills Numba's cache

    def track_first_call_seconds(self, backend):
        return measure.take_turns([lambda: measure.first_call_seconds(backend)], 3)[0]

    track_first_call_seconds.unit = "s"
