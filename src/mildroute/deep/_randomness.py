"""Random numbers of torch and transformers, without reseeding those of the caller."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from mildroute._transformers import need


@contextmanager
def own_randomness(seed: int) -> Iterator[None]:
    """Seed the global generators inside, and restore their state afterwards.

    Transformers seeds the generators of Python, NumPy and torch; a library must not do that to its
    caller.

    Args:
        seed: Seed of torch inside; the other generators are seeded where they are used.
    """
    import numpy as np

    torch = need("torch")
    python, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numbers)  # noqa: NPY002
