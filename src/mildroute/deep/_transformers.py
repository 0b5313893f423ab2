"""Torch and transformers, loaded only when a network is trained or exported.

They are kept from printing or reseeding anything.
"""

from __future__ import annotations

import contextlib
import importlib
import random
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from mildroute._optional import needs_extra


def need(package: str) -> Any:
    """Import an optional package, or say how to install it."""
    with needs_extra("", extra="deep", user="a deep router"), warnings.catch_warnings():
        # What these packages warn about while they load is not for their users' users.
        warnings.simplefilter("ignore")
        return importlib.import_module(package)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Transformers neither logs below errors, nor draws bars, nor warns of what it does itself.

    All is as before afterwards.
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


@contextlib.contextmanager
def own_randomness(seed: int) -> Iterator[None]:
    """Global generators are seeded inside, and outside go on as if nothing had happened.

    Transformers seeds the generators of Python, NumPy and torch; a library must not do that to its
    caller.

    Args:
        seed: Seed of torch inside; the other generators are seeded where they are used.
    """
    torch = need("torch")
    python, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numbers)  # noqa: NPY002
