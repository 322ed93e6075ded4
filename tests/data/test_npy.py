"""Files of npy and npz: any real dtype, damage of every kind, archives of several arrays."""

import io
import zipfile

import numpy as np
import pytest
from file_helpers import ROWS, read

import tgpfast as tgp
from tgpfast.data import files


@pytest.mark.parametrize("dtype", ["f8", "f4", ">f8", "i2", "u8", "?"])
def test_npy_of_numbers(tmp_path, dtype):
    """Any real dtype; the file is mapped."""
    x = np.array([[0, 1], [1, 0], [1, 1]]).astype(dtype)
    np.save(tmp_path / "x.npy", x)
    rows, names = read(tmp_path / "x.npy")
    np.testing.assert_array_equal(rows, x.astype(float))
    assert names is None
    assert isinstance(files.open_rows(tmp_path / "x.npy")[0], np.memmap)


@pytest.mark.parametrize(
    ("array", "kind", "message"),
    [
        (np.array([[1j]]), TypeError, "dtype complex128; expected real numbers"),
        (np.array([["a"]]), TypeError, "expected real numbers"),
        (np.array([[1, None]]), ValueError, "holds Python objects"),
        (np.zeros(2, dtype=[("a", "f8")]), TypeError, r"structured array \(a\)"),
        (np.zeros((2, 2, 2)), ValueError, r"shape \(2, 2, 2\); expected \(rows, columns\)"),
    ],
)
def test_npy_of_something_else(tmp_path, array, kind, message):
    """The dtype or shape found, and what was expected."""
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(kind, match=r"x\.npy.*" + message):
        read(tmp_path / "x.npy")


def test_npy_that_is_damaged(tmp_path):
    """Empty, of another kind, cut short, or an archive under the wrong name."""
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((100, 2)))
    whole = path.read_bytes()
    for content, message in (
        (b"", "is not an npy file: it is empty"), (b"1,2\n3,4\n", "is not an npy file"),
        (whole[:900], "damaged or cut short"), (whole[:20], "damaged or cut short"),
    ):  # fmt: skip
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read(path)
    np.savez(tmp_path / "x.npz", X=ROWS)
    path.write_bytes((tmp_path / "x.npz").read_bytes())
    with pytest.raises(ValueError, match=r"npz archive; give it the extension \.npz"):
        read(path)


@pytest.mark.parametrize(
    ("arrays", "names"),
    [
        ({"anything": ROWS}, None),
        ({"X": ROWS, "other": np.zeros((4, 4))}, None),
        ({"data": ROWS, "labels": np.zeros(3)}, None),
        ({"X": ROWS, "columns": np.array(["a", "b"])}, ["a", "b"]),
        ({"X": ROWS, "columns": np.array(["a", "b", "c"])}, None),  # not of these columns
        ({"X": ROWS, "objects": np.array([None], dtype=object)}, None),  # never loaded
    ],
)
def test_npz_takes_the_table(tmp_path, arrays, names):
    """The only table, or the one named X; names beside it where they fit."""
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "x.npz", **arrays)
        rows, columns = read(tmp_path / "x.npz")
        np.testing.assert_array_equal(rows, ROWS)
        assert columns == names


def npy_bytes(shape, content=b"\0" * 24):
    """An npy file whose header promises float64 of this shape."""
    buffer = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue() + content


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("shape", [(2**43, 2), (2**31, 2**31), (4,), (1, 2), (2**70, 3)])
def test_npz_that_promises_more_than_it_holds(tmp_path, shape, compression):
    """146 TiB, say: no memory is asked for."""
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("X.npy", npy_bytes(shape))
    with pytest.raises(ValueError, match=r"x\.npz cannot be read: .*X.*24.*numpy\.savez"):
        read(path)
    with pytest.raises(ValueError, match=r"x\.npz cannot be read"):
        tgp.fit(path)


def test_npz_whose_directory_promises_too_much(tmp_path):
    """The directory of the archive may be as wrong as the array's header."""
    path, size = tmp_path / "x.npz", 2**31
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", npy_bytes((size // 8, 1)))
        archive.infolist()[0].file_size = len(npy_bytes((1,), b"")) + size
    with pytest.raises(ValueError, match=r"x\.npz cannot be read: .* compressed bytes can hold"):
        read(path)


@pytest.mark.parametrize("shape", [(2**43, 2), (2**70, 3)])
def test_npy_that_promises_more_than_it_holds(tmp_path, shape):
    path = tmp_path / "x.npy"
    path.write_bytes(npy_bytes(shape))
    with pytest.raises(ValueError, match=r"x\.npy is damaged or cut short"):
        read(path)


@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_random_damage_of_a_binary_file_is_a_value_error(tmp_path, name):
    rng, path = np.random.default_rng(5), tmp_path / name
    np.save(path, ROWS) if name == "x.npy" else np.savez(path, X=ROWS)
    whole, refused = path.read_bytes(), 0
    for _ in range(150):
        content = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            at = rng.integers(len(content) if name == "x.npz" else 128)
            content[at] ^= 1 << rng.integers(8)
        path.write_bytes(content)
        try:
            read(path)
        except (ValueError, TypeError):
            refused += 1
    assert refused >= 75


def test_npz_without_one_table(tmp_path):
    """What the archive holds is listed; a saved model is recognised; a damaged file is said so."""
    path = tmp_path / "x.npz"
    np.savez(path, a=ROWS, b=ROWS)
    with pytest.raises(ValueError, match=r"expected one .* or one named X; it holds a \(3, 2\), b"):
        read(path)
    np.savez(path, a=np.array(["x"]))
    with pytest.raises(ValueError, match="expected one two-dimensional"):
        read(path)
    tgp.Statistics.zero(tgp.Features.draw(3, 1.0, np.eye(2), seed=0)).save(path)
    with pytest.raises(ValueError, match="saved by tgpfast, not a data file"):
        read(path)
    whole = path.read_bytes()
    for content in (whole[:200], b"", b"PK\x03\x04 nothing"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"x\.npz cannot be read"):
            read(path)
