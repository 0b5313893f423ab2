"""Torch and transformers, loaded on demand and kept quiet."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mildroute._optional import needs_extra


def need(package: str, *, extra: str = "deep", user: str = "a deep router") -> Any:
    """Import an optional package, or raise an error that says how to install it."""
    with needs_extra("", extra=extra, user=user), warnings.catch_warnings():
        # Warnings from loading these packages are of no use to our users.
        warnings.simplefilter("ignore")
        return importlib.import_module(package)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers: no logs below errors, no progress bars and no deprecation warnings.

    The previous settings are restored afterwards.
    """
    log = need("transformers").utils.logging
    level, has_progress_bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        log.set_verbosity(level)
        if has_progress_bars:
            log.enable_progress_bar()
