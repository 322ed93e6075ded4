"""Saved files: the checksum, damage of every kind, temporary files of killed saves."""

import io
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import zipfile

import numpy as np
import pytest
from conftest import fixed_fit

import tgpfast as tgp
from tgpfast.data import storage

KINDS = ("fd", "fvpd", "mixture", "student", "with_statistics", "statistics", "spectrum", "groups")


def rows(seed, n=200):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 2)) * [1.0, 0.5] + [0.0, 3.0]


def save_all(folder, seed):
    """One file of every kind, from rows and features of this seed."""
    folder.mkdir()
    x, options = rows(seed), {"n_features": 12, "seed": seed}
    features = tgp.Features.draw(12, 0.8, np.eye(2), seed)
    fixed_fit(x, **options).save(folder / "fd.npz")
    fixed_fit(x, method="fvpd", **options).save(folder / "fvpd.npz")
    fixed_fit(x, base="mixture", **options).save(folder / "mixture.npz")
    fixed_fit(x, base="student", **options).save(folder / "student.npz")
    fixed_fit(x, **options).save(folder / "with_statistics.npz", statistics=True)
    tgp.accumulate(x, features, noise_levels=(0.0, 0.5)).save(folder / "statistics.npz")
    tgp.Spectrum.from_data(x, features.bandlimit, tolerance=1e-3).save(folder / "spectrum.npz")
    groups = np.arange(len(x)) % 3
    tgp.fit_groups(x, groups, n_features=12, seed=seed).save(folder / "groups.npz")
    return folder


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Two folders of files whose members have the same names and shapes."""
    folder = tmp_path_factory.mktemp("saved")
    return [save_all(folder / str(seed), seed) for seed in (0, 1)]


def saved_again(path, kind):
    """The bytes of what a file holds, loaded and saved."""
    again = path.with_name("again.npz")
    tgp.load(path).save(again, **({"statistics": True} if kind == "with_statistics" else {}))
    return again.read_bytes()


def members_of(path):
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def write_members(path, members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def as_npy(array):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(array))
    return buffer.getvalue()


def header_of(members):
    return json.loads(str(np.lib.format.read_array(io.BytesIO(members["header.npy"]))))


@pytest.mark.parametrize("kind", KINDS)
def test_members_of_another_file_are_refused(kind, saved, tmp_path):
    """Every member in turn, the header included, though names, dtypes and shapes are equal."""
    mine, other = (members_of(folder / f"{kind}.npz") for folder in saved)
    path, swapped = tmp_path / "swapped.npz", 0
    write_members(path, mine)
    tgp.load(path)  # rewriting alone does no harm
    for name, content in other.items():
        if name in mine and content != mine[name]:
            write_members(path, mine | {name: content})
            with pytest.raises(ValueError, match="damaged") as caught:
                tgp.load(path)
            assert "backup" in str(caught.value), name
            swapped += 1
    assert swapped >= 4


@pytest.mark.parametrize("kind", KINDS)
def test_files_without_a_checksum_load(kind, saved, tmp_path):
    """The first files of tgpfast have none."""
    members, path = members_of(saved[0] / f"{kind}.npz"), tmp_path / "old.npz"
    header = header_of(members)
    assert len(header.pop("checksum")) == 64
    write_members(path, members | {"header.npy": as_npy(np.array(json.dumps(header)))})
    assert saved_again(path, kind) == (saved[0] / f"{kind}.npz").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_random_damage_is_a_value_error(kind, saved, tmp_path):
    """Bits and bytes of the file, bytes of members under a valid CRC, members dropped or renamed:
    a ValueError, or what was saved."""
    rng = np.random.default_rng(KINDS.index(kind))
    whole = (saved[0] / f"{kind}.npz").read_bytes()
    members, path = members_of(saved[0] / f"{kind}.npz"), tmp_path / "x"
    refused = 0
    for case in range(120):
        if case % 2:  # the zip's own records are at the end, array headers at the beginnings
            content = bytearray(whole)
            end = case % 4 == 1
            for _ in range(rng.integers(1, 4)):
                low = len(content) * 9 // 10 if end else 0
                at = rng.integers(low, len(content))
                content[at] = rng.integers(256) if case % 8 < 4 else content[at] ^ (
                    1 << rng.integers(8)
                )
            path.write_bytes(content)
        else:
            changed = dict(members)
            name = list(members)[rng.integers(len(members))]
            content = bytearray(members[name])
            for _ in range(rng.integers(1, 4)):
                at = rng.integers(min(len(content), 140 if case % 4 else len(content)))
                content[at] ^= 1 << rng.integers(8)
            changed[name] = bytes(content)
            if case % 20 == 0:
                del changed[name]
            write_members(path, changed)
        try:
            assert saved_again(path, kind) == whole
        except ValueError:
            refused += 1
    assert refused >= 90


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_random_damage_without_a_checksum_is_a_value_error(kind, saved, tmp_path):
    """Old files are judged by what their members say: no other error than ValueError escapes."""
    rng = np.random.default_rng(10 + KINDS.index(kind))
    members, path = members_of(saved[0] / f"{kind}.npz"), tmp_path / "x"
    header = header_of(members)
    del header["checksum"]
    spoils = [
        None, "x", -1, 0, [], {}, True, float("inf"), float("nan"), 10**400, 1e308, [[]], "\udcff",
    ]
    for _ in range(60):
        changed, facts = dict(members), dict(header)
        key = list(facts)[rng.integers(len(facts))]
        inner = facts[key]
        if isinstance(inner, dict) and inner and rng.random() < 0.7:
            field = list(inner)[rng.integers(len(inner))]
            facts[key] = inner | {field: spoils[rng.integers(len(spoils))]}
        else:
            facts[key] = spoils[rng.integers(len(spoils))]
        if rng.random() < 0.5:
            name = list(members)[rng.integers(1, len(members))]
            content = bytearray(members[name])
            content[rng.integers(len(content))] ^= 1 << rng.integers(8)
            changed[name] = bytes(content)
        changed["header.npy"] = as_npy(np.array(json.dumps(facts)))
        write_members(path, changed)
        message = str(path)
        try:
            tgp.load(path)
        except ValueError as error:  # some changes do no harm, and it loads
            message = str(error)
        assert str(path) in message


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000, '{"a":' * 100_000, '{"kind": "density", "version": 1e999}',
        '{"kind": "density", "version": 1, "a": ' + "[" * 200 + "]" * 200 + "}",
        '{"kind": "statistics", "version": Infinity}', '{"kind": "density", "version": NaN}',
        '{"kind": "density", "version": 1' + "0" * 5000 + "}", "1", "null", '"x"', "",
    ],
)
def test_headers_that_are_deep_or_infinite(text, tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, header=np.array(text))
    with pytest.raises(ValueError, match=r"damaged header.*backup"):
        tgp.load(path)


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (3", "{'descr': (((((((((((", "'''",
        "(" * 5000, "-" * 9000 + "1", "{'descr': '<f8', 'fortran_order': False, 'shape': (-3,), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (True,), }",
        "{'descr': '(2,', 'fortran_order': False, 'shape': (3,), }",
        "{'descr': '<U0', 'fortran_order': False, 'shape': (99999999999999,), }",
        "{'descr': '\\q', 'fortran_order': False, 'shape': (3L,), }",
    ],
)
def test_damaged_array_headers(header, saved, tmp_path):
    """Python's tokenizer and parser, which NumPy uses, raise errors of their own."""
    text = header.encode("latin1") + b"\n"
    content = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + b"\0" * 24
    path, members = tmp_path / "x.npz", members_of(saved[0] / "fd.npz")
    write_members(path, members | {"theta.npy": content})
    with pytest.raises(ValueError, match="damaged"):
        tgp.load(path)


# -- temporary files -----------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from tgpfast.data.storage import replacing
with replacing(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    print(flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="processes are looked up by a signal of Unix")
def test_the_next_save_removes_what_a_killed_one_left(tmp_path):
    target, neighbour = tmp_path / "m.npz", tmp_path / "other.npz"
    for path in (target, neighbour):
        done = subprocess.run([sys.executable, "-c", KILLED, os.fspath(path)], check=False)
        assert done.returncode == -signal.SIGKILL
    assert len(list(tmp_path.glob("*.part"))) == 2
    with storage.replacing(target) as file:
        file.write(b"whole")
    left = list(tmp_path.glob("*.part"))
    assert [path.name.split(".npz")[0] for path in left] == ["other"]
    assert target.read_bytes() == b"whole"


def test_temporary_files_of_the_living_are_left(tmp_path):
    """Those of this process, of a process that runs, of another machine, of other programs; but
    not those of another machine once they are a week old."""
    target = tmp_path / "m.npz"
    machine, token = storage._machine_id(), "0123456789abcdef"
    other = "0" * 8 if machine != "0" * 8 else "1" * 8
    kept = [
        f"m.npz.{machine}-{os.getppid()}-{token}.part", f"m.npz.{other}-999999999-{token}.part",
        "m.npz.part", f"m.npz.{token}.part", f"mine.npz.{machine}-999999999-{token}.part",
    ]  # fmt: skip
    for name in kept:
        (tmp_path / name).write_bytes(b"")
    with storage.replacing(target) as first:
        with storage.replacing(target) as second:
            second.write(b"second")
        first.write(b"first")
    assert target.read_bytes() == b"first"
    assert sorted(os.listdir(tmp_path)) == sorted([*kept, "m.npz"])
    week_ago = time.time() - storage.STALE_SECONDS - 60.0
    for name in kept:
        os.utime(tmp_path / name, (week_ago, week_ago))
    with storage.replacing(target) as file:
        file.write(b"third")
    gone = {kept[1], kept[3]} if os.name != "nt" else {kept[0], kept[1], kept[3]}
    assert sorted(os.listdir(tmp_path)) == sorted([*(set(kept) - gone), "m.npz"])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_written_not_replaced(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    code = textwrap.dedent("""
        import sys
        sys.stdout.buffer.write(open(sys.argv[1], "rb").read())
    """)
    reader = subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE)
    with storage.replacing(path) as file:
        file.write(b"through")
    assert reader.communicate()[0] == b"through"
    assert path.is_fifo()


@pytest.mark.parametrize(
    ("place", "error", "message"),
    [
        ("none/m.npz", FileNotFoundError, "no such folder: .*none'; make it, or write m.npz else"),
        ("folder", ValueError, "folder' is a folder; give the name of a file"),
        ("file/m.npz", ValueError, "file' is a file; give the path of a folder in its place"),
    ],
)
def test_a_place_that_cannot_hold_a_file_is_named(place, error, message, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    stats = tgp.accumulate(rows(0), tgp.Features.draw(5, 0.8, np.eye(2), 0))
    for saved in (stats, fixed_fit(rows(0), n_features=5)):
        with pytest.raises(error, match=message):
            saved.save(tmp_path / place)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == "mine"


def test_errors_of_the_system_name_the_file(tmp_path, monkeypatch):
    """And not the temporary one that is written first; those of other files keep their name."""
    target = tmp_path / "rows.csv"
    with pytest.raises(OSError, match="No space") as caught, storage.replacing(target):
        raise OSError(28, "No space left on device")
    assert caught.value.filename == str(target)
    with pytest.raises(OSError, match="other") as caught, storage.replacing(target):
        raise FileNotFoundError(2, "No such file", "other.csv")
    assert caught.value.filename == "other.csv"
    assert os.listdir(tmp_path) == []

    def refuse(path, *_):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(PermissionError) as caught, storage.replacing(target):
        pytest.fail("the file was opened")
    assert caught.value.filename == str(target)
