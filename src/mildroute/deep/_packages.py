"""Load torch and transformers on demand, and keep them from printing or reseeding anything."""

from __future__ import annotations

import importlib
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mildroute._optional import needs_extra


def need(package: str) -> Any:
    """Import an optional package, or raise an error that says how to install it."""
    with needs_extra("", extra="deep", user="a deep router"), warnings.catch_warnings():
        # Warnings that these packages raise while loading are of no use to our users.
        warnings.simplefilter("ignore")
        return importlib.import_module(package)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers: no logs below errors, no bars, and no warnings about its own calls.

    The previous settings are restored afterwards.
    """
    log = need("transformers").utils.logging
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()


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
