"""Small tables that the tests of this room share."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

# four queries, three experts; worked out by hand in the tests
COSTS = np.array([[0.0, 0.5, 1.0], [1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [1.0, 0.25, 0.75]])
CHOICE = np.array([0, 0, 2, 1])


@st.composite
def tables(draw: Any, least_rows: int = 1) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Costs with ties, shape (n, p), and a choice, shape (n,)."""
    rows, experts = draw(st.integers(least_rows, 12)), draw(st.integers(1, 5))
    costs = draw(
        arrays(
            np.float64,
            (rows, experts),
            elements=st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75, 1.0]),
        )
    )
    choice = draw(arrays(np.intp, rows, elements=st.integers(0, experts - 1)))
    return costs, choice
