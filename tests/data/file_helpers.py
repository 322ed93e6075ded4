"""What the tests of data files share."""

import numpy as np

from tgpfast.data.blocks import Blocks

ROWS = np.array([[1.0, -2.5], [3.0, 4e-3], [5.0, 6.0]])


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def read(path):
    """All rows and the names, through the reader that everything uses."""
    blocks = Blocks(path)
    return blocks.whole(), blocks.table.columns
