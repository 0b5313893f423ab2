"""Seeds for torch and transformers that leave the caller's random state unchanged."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from mildroute._transformers import need


@contextmanager
def own_randomness(seed: int) -> Iterator[None]:
    """Seed the global generators inside, and restore their state afterwards.

    Transformers seeds Python's, NumPy's and torch's generators, which a library must not do to its
    caller.

    Args:
        seed: Seed for torch; the other generators are seeded where they are used.
    """
    import numpy as np

    torch = need("torch")
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)  # noqa: NPY002
