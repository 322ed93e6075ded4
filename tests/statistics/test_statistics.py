"""Statistics: the rules of ``+`` and ``-``, fingerprints, and saved files."""

import dataclasses
import io
import json
import os
import zipfile

import numpy as np
import pytest

import tgpfast as tgp
from tgpfast.data import storage
from tgpfast.statistics import statistics

SUMS = ("n", "n_rows", "sum_w2", "sum_x", "sum_xx", "sum_phi", "sum_dphi", "sum_dphi_x", "gram",
        "gram_phi", "noise_gram", "noise_sum_phi", "noise_sum_dphi",
        "noise_sum_dphi_x")  # fmt: skip
LEVELS = (0.0, 0.4)


def make(n=60, seed=0, S=11, d=3, features=None, **options):
    rng = np.random.default_rng(seed)
    features = features or tgp.Features.draw(S, 0.8, np.eye(d), seed=5)
    x = rng.standard_normal((n, features.dimension))
    options = {"noise_levels": LEVELS, "gram_phi": True, "precision": "float64"} | options
    return tgp.accumulate(x, features, **options), x


def equal(a, b):
    return all(np.array_equal(getattr(a, k), getattr(b, k)) for k in SUMS)


def test_zero_is_the_identity():
    stats, _ = make()
    zero = statistics.Statistics.zero(stats.features, noise_levels=LEVELS, gram_phi=True)
    assert equal(stats + zero, stats)
    assert equal(zero + stats, stats)
    assert (stats + zero).provenance == stats.provenance
    assert equal(sum([stats]), stats)


def test_addition_commutes_exactly():
    (a, _), (b, _) = make(seed=1), make(seed=2)
    assert equal(a + b, b + a)
    assert (a + b).provenance == (b + a).provenance


def test_addition_associates_and_splitting_changes_nothing():
    whole, x = make(n=900)
    parts = [
        tgp.accumulate(p, whole.features, noise_levels=LEVELS, gram_phi=True, precision="float64")
        for p in (x[:1], x[1:257], x[257:])
    ]
    a, b, c = parts
    for name in SUMS:
        left, right = getattr((a + b) + c, name), getattr(a + (b + c), name)
        full = np.asarray(getattr(whole, name))
        # terms are at most |x|^2 or amplitude^2 / gamma^2 in size: a few units of the largest sum,
        # and six standard deviations of 900 rounded additions
        bound = 6 * np.sqrt(900) * np.finfo(float).eps * max(900.0, np.abs(full).max())
        assert np.abs(left - right).max() <= bound, name
        assert np.abs(left - full).max() <= bound, name
    assert sum(parts).n_rows == 900


def test_wrong_sums_fail_the_comparison():
    """Negative control of the comparison above."""
    a, _ = make(seed=1)
    b, _ = make(seed=2)
    assert not equal(a + b, a + a)
    assert not equal(a, a + a)


def test_provenance_keeps_both_sides():
    a, _ = make(seed=1, backend="numpy")
    b, _ = make(seed=2, precision="mixed")
    both = (a + b).provenance
    assert both["engine"] == "direct"
    assert set(both["precision"]) == {"float64", "mixed"}
    assert ((a + b) + a).provenance == both


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (lambda z, c, g: tgp.Features(z[:-1], c[:-1], g), "11 and 10 features"),
        (lambda z, c, g: tgp.Features(z[:, :2], c, g), "dimensions 3 and 2"),
        (lambda z, c, g: tgp.Features(z, c, g * (1 + 1e-15)), "bandwidths are"),
        (lambda z, c, g: tgp.Features(z, c + 1e-15, g), "different phases"),
        (lambda z, c, g: tgp.Features(z * (1 + 1e-15), c, g), "different frequencies"),
    ],
)
def test_features_that_differ_are_refused(other, words):
    stats, _ = make()
    f = stats.features
    theirs, _ = make(features=other(f.frequencies, f.phases, f.bandwidth))
    with pytest.raises(ValueError, match=words):
        stats + theirs
    assert stats.fingerprint != theirs.fingerprint


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"origin": [0.0, 0.0, 1.0]}, "origins are"),
        ({"noise_levels": (0.0, 0.5)}, "noise levels are"),
        ({"noise_levels": ()}, "noise levels are"),
        ({"gram_phi": False}, "gram_phi"),
    ],
)
def test_options_that_differ_are_refused(options, words):
    (a, _), (b, _) = make(), make(**options)
    with pytest.raises(ValueError, match=words):
        a + b
    assert a.fingerprint != b.fingerprint


def test_equal_features_from_elsewhere_are_accepted():
    a, x = make()
    f = a.features
    copy = tgp.Features(f.frequencies.copy(), f.phases.copy(), f.bandwidth)
    b = tgp.accumulate(x, copy, noise_levels=LEVELS, gram_phi=True, precision="float64")
    assert (a + b).n_rows == 120
    assert a.fingerprint == b.fingerprint


def test_other_types_do_not_add():
    stats, _ = make()
    for other in (1, 0.0, "x", None):
        with pytest.raises(TypeError):
            stats + other
    with pytest.raises(TypeError):
        1 + stats


def test_repr_says_what_it_is():
    stats, _ = make()
    assert "60 rows" in repr(stats)
    assert "11 features" in repr(stats)
    assert "direct" in repr(stats)


# -- fewer features -------------------------------------------------------------------------------


@pytest.mark.parametrize("bare", [False, True])
def test_statistics_of_the_first_features(bare):
    """As accumulated with those features alone, every field, up to roundings of 60 rows."""
    base = None if bare else tgp.StudentBase(np.zeros(3), np.eye(3), 4.0)
    options = {"sample_weight": np.random.default_rng(3).uniform(0.5, 2.0, 60), "base": base}
    if bare:
        options |= {"noise_levels": (), "gram_phi": False}
    whole, _ = make(**options)
    few = whole.first_features(4)
    want, _ = make(features=whole.features.first(4), **options)
    assert few.features == want.features
    assert (few.fingerprint, few.score_base) == (want.fingerprint, want.score_base)
    for name in (*SUMS, "sum_dphi_score"):
        mine, theirs = getattr(few, name), getattr(want, name)
        assert np.shape(mine) == np.shape(theirs), name
        if theirs is not None and np.size(theirs):
            bound = 60 * 2.0**-52 * max(60.0, np.abs(theirs).max())
            assert np.abs(mine - theirs).max() <= bound, name
    assert equal(whole.first_features(11), whole)
    # negative control: without the larger amplitude they differ
    assert np.abs(whole.gram[:4, :4] - want.gram).max() > 0.1 * np.abs(want.gram).max()


# -- differences ----------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_subtraction_undoes_addition(weighted):
    """Up to a rounding of the sum; counts are exact."""
    weights = np.random.default_rng(3).uniform(0.5, 2.0, 60) if weighted else None
    (a, _), (b, _) = make(seed=1, sample_weight=weights), make(seed=2, n=40)
    rest = (a + b) - b
    for name in SUMS:
        mine, whole = getattr(a, name), getattr(a + b, name)
        bound = np.finfo(float).eps * np.abs(whole).max()  # half an ulp each
        assert np.abs(getattr(rest, name) - mine).max() <= bound, name
    assert rest.n_rows == 60
    assert rest.fingerprint == a.fingerprint
    assert rest.provenance == (a + b).provenance
    assert not equal(rest, b)  # negative control


def test_more_weight_than_there_is_cannot_be_subtracted():
    """A part that did not decay with the whole would leave a negative weight."""
    (a, _), (b, _) = make(seed=1), make(seed=2, n=40)
    total = (a + b).decay(0.1)
    with pytest.raises(ValueError, match=r"weigh 40 cannot be .* weigh 10.*decay"):
        total - b
    rest = total - b.decay(0.1)
    assert rest.n == pytest.approx(6.0)
    assert (rest - a.decay(0.1)).n == pytest.approx(0.0, abs=1e-14)  # up to rounding


def test_provenance_of_a_stream_does_not_grow():
    """Of numbers the least and the greatest are kept, of texts a few."""
    stats, _ = make(engine="direct")
    for k in range(100):
        facts = {
            "estimated_direct": 0.5 + (k * 37) % 100, "estimated_spectral": None if k % 2 else 1.0,
            "tolerance": 1e-9 * (k + 1), "reason": f"reason {k:03}", "one_grid": bool(k % 2),
        }  # fmt: skip
        stats = stats + dataclasses.replace(make(n=2)[0], provenance=facts)
    assert stats.provenance["estimated_direct"] == [0.5, 99.5]
    assert stats.provenance["estimated_spectral"] == [None, 1.0]
    assert stats.provenance["one_grid"] == [False, True]
    assert len(stats.provenance["reason"]) == 8
    assert stats.provenance["engine"] == "direct"
    assert stats.accuracy_options()["tolerance"] == 1e-9


def test_nothing_and_everything_can_be_subtracted():
    stats, _ = make()
    zero = statistics.Statistics.zero(stats.features, noise_levels=LEVELS, gram_phi=True)
    assert equal(stats - zero, stats)
    assert equal(stats - stats, zero)


def test_sums_of_scores_are_subtracted():
    """If both have the same base."""
    base = tgp.StudentBase(np.zeros(3), np.eye(3), 4.0)
    (a, _), (b, _) = make(seed=1, base=base), make(seed=2, base=base)
    rest = (a + b) - b
    assert rest.score_base == base.fingerprint
    bound = np.finfo(float).eps * np.abs((a + b).sum_dphi_score).max()
    assert np.abs(rest.sum_dphi_score - a.sum_dphi_score).max() <= bound
    with pytest.raises(ValueError, match=r"cannot be subtracted: .* different bases"):
        a - make(seed=2)[0]


def test_more_rows_than_there_are_cannot_be_subtracted():
    (a, _), (b, _) = make(n=60), make(n=61)
    with pytest.raises(ValueError, match=r"61 rows cannot be .* 60"):
        a - b


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"S": 10}, "11 and 10 features"), ({"d": 2}, "dimensions 3 and 2"),
        ({"origin": [0.0, 0.0, 1.0]}, "origins are"), ({"noise_levels": ()}, "noise levels are"),
        ({"gram_phi": False}, "gram_phi"),
    ],
)  # fmt: skip
def test_statistics_of_another_kind_are_not_subtracted(options, words):
    (a, _), (b, _) = make(), make(n=20, **options)
    with pytest.raises(ValueError, match=f"cannot be subtracted: .*{words}"):
        a - b


def test_other_types_are_not_subtracted():
    stats, _ = make()
    for other in (0, 1.0, "x", None):
        with pytest.raises(TypeError):
            stats - other
        with pytest.raises(TypeError):
            other - stats


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"noise_levels": (), "gram_phi": False}])
def test_round_trip_is_exact(tmp_path, options):
    stats, _ = make(**options)
    path = tmp_path / "stats.npz"
    stats.save(path)
    back = tgp.load(path)
    assert equal(stats, back)
    assert back.fingerprint == stats.fingerprint
    assert back.features == stats.features
    assert back.features.seed == 5
    assert np.array_equal(back.features.covariance, np.eye(3))
    assert back.provenance == stats.provenance
    assert (back + stats).n_rows == 120
    assert os.listdir(tmp_path) == ["stats.npz"]


def test_matrices_are_stored_once(tmp_path):
    stats, _ = make(S=200, noise_levels=(), gram_phi=False)
    stats.save(tmp_path / "stats.npz")
    assert (tmp_path / "stats.npz").stat().st_size < 0.6 * stats.gram.nbytes


def test_no_pickles_inside(tmp_path):
    stats, _ = make()
    stats.save(tmp_path / "stats.npz")
    with np.load(tmp_path / "stats.npz", allow_pickle=False) as archive:
        assert {archive[name].dtype.kind for name in archive.files} <= {"f", "U"}


def test_a_failed_save_keeps_the_old_file(tmp_path, monkeypatch):
    stats, _ = make()
    path = tmp_path / "stats.npz"
    stats.save(path)
    before = path.read_bytes()

    def crash(*args):
        raise OSError("disk full")

    monkeypatch.setattr(storage.os, "fsync", crash)
    with pytest.raises(OSError, match="disk full"):
        stats.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["stats.npz"]


def test_saving_through_a_link_keeps_it(tmp_path):
    """The file that it points to is written, whether there was one or not."""
    stats, _ = make()
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "stats.npz", tmp_path / "latest.npz"
    try:
        link.symlink_to(target)
    except OSError:
        pytest.skip("no links here")
    for _ in range(2):
        stats.save(link)
        assert link.is_symlink()
        assert not target.is_symlink()
        assert equal(tgp.load(target), stats)
        target.write_bytes(b"old")
    assert os.listdir(target.parent) == ["stats.npz"]


@pytest.mark.skipif(os.name == "nt", reason="only Unix has such permissions")
def test_the_permissions_of_a_saved_file(tmp_path, monkeypatch):
    """Those of an old file are kept, and nobody else can read it meanwhile. A new file has the
    usual ones. The umask, which all threads share, is not changed."""
    stats, _ = make()
    path, plain = tmp_path / "stats.npz", tmp_path / "plain"
    plain.write_bytes(b"")
    changed, during = [], []
    fsync = os.fsync
    monkeypatch.setattr(storage.os, "umask", changed.append)
    monkeypatch.setattr(
        storage.os, "fsync", lambda fd: during.append(os.fstat(fd).st_mode) or fsync(fd)
    )
    stats.save(path)
    assert path.stat().st_mode == plain.stat().st_mode
    for mode in (0o600, 0o640, 0o666, 0o400):
        path.chmod(mode)
        stats.save(path)
        assert path.stat().st_mode & 0o7777 == mode
        assert during[-1] & 0o7777 == 0o600
    assert not changed


@pytest.mark.skipif(os.name == "nt", reason="whole paths are limited there")
@pytest.mark.parametrize("letter", ["x", "é"])
def test_the_longest_name_can_be_saved(tmp_path, letter):
    """255 bytes, of which the temporary file's name takes a few."""
    stats, _ = make()
    path = tmp_path / (letter * (251 // len(letter.encode())) + ".npz")
    path.write_bytes(b"")  # the file system takes the name
    stats.save(path)
    assert equal(tgp.load(path), stats)
    assert len(os.listdir(tmp_path)) == 1


def rewritten(path, change):
    """The members of an npz as (name, bytes), changed and written anew, without the checksum."""
    with zipfile.ZipFile(path) as archive:
        members = [(i.filename, archive.read(i)) for i in archive.infolist()]
    header = json.loads(str(np.lib.format.read_array(io.BytesIO(members[0][1]))))
    header.pop("checksum", None)
    members[0] = ("header.npy", as_npy(np.array(json.dumps(header))))
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in change(members):
            archive.writestr(name, content)


def as_npy(array):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(array), allow_pickle=True)
    return buffer.getvalue()


def with_header(**facts):
    def change(members):
        header = json.loads(str(np.lib.format.read_array(io.BytesIO(members[0][1]))))
        return [("header.npy", as_npy(np.array(json.dumps(header | facts)))), *members[1:]]

    return change


def with_member(name, array):
    def change(members):
        return [(n, as_npy(array) if n == f"{name}.npy" else c) for n, c in members]

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m[1:], "no header"),
        (lambda m: m[:-1], "lacks"),
        (with_header(version=99), "upgrade"),
        (with_header(version="x"), "damaged header"),
        (with_header(kind="sandwich"), "sandwich"),
        (with_header(bandwidth=-1.0), "bandwidth"),
        (with_header(n=None), "is damaged"),
        (lambda m: [*m, ("extra.npy", as_npy(np.zeros(2)))], "unexpected"),
        (lambda m: [*m, ("../evil.npy", as_npy(np.zeros(2)))], "unexpected member"),
        (lambda m: [*m, ("note.txt", b"hello")], "unexpected member"),
        (with_member("gram", np.zeros(3)), "gram"),
        (with_member("gram", np.zeros(66, np.float32)), "gram"),
        (with_member("sum_x", np.array([{}], dtype=object)), "dtype"),
        (lambda m: [(n, c[:-8] if n == "sum_x.npy" else c) for n, c in m], "as long as"),
        (lambda m: [(n, c + b"\0" if n == "sum_x.npy" else c) for n, c in m], "as long as"),
        (lambda m: [(n, b"junk" if n == "sum_x.npy" else c) for n, c in m], "damaged"),
    ],
)
def test_doctored_files_are_refused(tmp_path, change, words):
    stats, _ = make()
    path = tmp_path / "stats.npz"
    stats.save(path)
    rewritten(path, change)
    with pytest.raises(ValueError, match=words):
        tgp.load(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_duplicate_members_are_refused(tmp_path):
    stats, _ = make()
    path = tmp_path / "stats.npz"
    stats.save(path)
    rewritten(path, lambda m: [*m, m[-1]])
    with pytest.raises(ValueError, match="unexpected member"):
        tgp.load(path)


def test_compressed_members_are_refused(tmp_path):
    """A zip bomb has to be compressed; what we write is not."""
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, header=np.zeros(1_000_000))
    with pytest.raises(ValueError, match="compressed"):
        tgp.load(path)


def test_truncated_and_foreign_files(tmp_path):
    stats, _ = make()
    path = tmp_path / "stats.npz"
    stats.save(path)
    content = path.read_bytes()
    for size in (0, 1, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(ValueError, match="not a file saved by tgpfast"):
            tgp.load(path)
    np.save(tmp_path / "array.npy", np.zeros(3))
    with pytest.raises(ValueError, match="not a file saved by tgpfast"):
        tgp.load(tmp_path / "array.npy")
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(ValueError, match="no header"):
        tgp.load(tmp_path / "other.npz")
    with pytest.raises(FileNotFoundError):
        tgp.load(tmp_path / "missing.npz")
