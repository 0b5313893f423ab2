"""Ordering of the experts of a row; the paper breaks ties in favor of the highest index."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def argmax_last(values: NDArray[Any]) -> NDArray[np.intp]:
    """Return the column of the largest value of each row; ties go to the highest column."""
    return values.shape[1] - 1 - np.argmax(values[:, ::-1], axis=1)


def argsort_desc(values: NDArray[Any]) -> NDArray[np.intp]:
    """Return the columns of each row by descending value; ties go to the highest column first."""
    return values.shape[1] - 1 - np.argsort(-values[:, ::-1], axis=1, kind="stable")


def chosen_costs(values: NDArray[Any], choice: NDArray[np.intp]) -> NDArray[Any]:
    """Return the value, such as the cost, of each row's chosen expert, shape (n,)."""
    return np.asarray(values[np.arange(len(values)), choice])
