"""Inputs as they are, encoded images or texts, for networks that read them themselves."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mildroute.engine.folders import Folders
from mildroute.engine.inputs import IMAGE_SETS, TEXT_SETS, table_file
from mildroute.errors import ArgumentError

__all__ = ["raw_inputs"]


def raw_inputs(name: str, rows: NDArray[np.intp], folders: Folders) -> list[Any]:
    """Some rows of a data set, as they are.

    Args:
        name: Name of an image set or of a table of answers.
        rows: Which rows, shape (n,).
        folders: Where the data lies.

    Returns:
        Bytes of n image files, or n texts.

    Example:
        >>> raw_inputs("toy", np.arange(3), Folders("", ""))
        Traceback (most recent call last):
        mildroute.errors.ArgumentError: raw inputs must be of cifar10, ..., mmlu_qwen, got 'toy'; toy data has vectors alone.
    """
    if name not in IMAGE_SETS + TEXT_SETS:
        raise ArgumentError(f"raw inputs must be of {', '.join(IMAGE_SETS + TEXT_SETS)}, got {name!r}; toy data has vectors alone.")
    column = _column(name, folders)
    return [column[row] for row in rows]


@lru_cache(maxsize=2)
def _column(name: str, folders: Folders) -> list[Any]:
    file = table_file(name, folders)
    # Benchmark files call their texts "text", collected tables "input".
    wanted = ("image",) if name in IMAGE_SETS else ("text", "input")
    known = [column for column in wanted if column in pq.read_schema(file).names]
    if not known:
        raise ArgumentError(f"{file.name} must have a column {' or '.join(wanted)}, got {pq.read_schema(file).names}; write it again.")
    return list(pq.read_table(file, columns=known[:1])[known[0]].to_pylist())
