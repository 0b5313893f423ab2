"""Optional packages, plug-ins, and packages that load their modules on first use."""

from __future__ import annotations

import importlib
import random
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from mildroute.exceptions import ArgumentError, MildrouteError, MissingExtraError

_EXPORTS = re.compile(r"^    from ([\w.]+) import (\([^)]*\)|.+)$", re.MULTILINE)


def lazy_exports(package: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of a package that imports nothing itself.

    They are read from imports in the package's own source, such as
    ``from module import Name as Name`` below ``if TYPE_CHECKING:``, so that each name is written
    once, where type checkers look for it. The idea is that of ``lazy_loader.attach_stub`` (SPEC 1),
    without a second file.
    """
    loader: Any = sys.modules[package].__spec__.loader  # type: ignore[union-attr]
    home_of = {
        name: module
        for module, names in _EXPORTS.findall(loader.get_source(package))
        for name in re.findall(r"(\w+) as \1\b", names)
    }

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(home_of[name]), name)

    names = sorted(home_of)
    return names, get, lambda: names


@contextmanager
def needs_extra(package: str, *, extra: str, user: str) -> Iterator[None]:
    """Turn a failed import into an error that says how to install the package.

    Args:
        package: Name of the package; an empty one stands for the missing module.
        extra: Extra of mildroute that installs it.
        user: Feature that needs it.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        name = package or missing.name or "another package"
        raise MissingExtraError.for_package(name, extra=extra, user=user) from missing


def load_torch() -> Any:
    """Return the torch package, or raise an error that says how to install it."""
    with needs_extra("torch", extra="torch", user="fitting this router"):
        return importlib.import_module("torch")


def _entry_points(**wanted: str) -> tuple[Any, ...]:
    # Not at the top: it loads twenty modules that most users of mildroute never need.
    return tuple(importlib.import_module("importlib.metadata").entry_points(**wanted))


def plugin_names(group: str) -> set[str]:
    """Return the names that installed distributions registered under an entry-point group."""
    return {point.name for point in _entry_points(group=group)}


def load_plugin(
    group: str,
    name: str,
    *,
    thing: str,
    known: Iterable[str] = (),
    error: type[MildrouteError] = ArgumentError,
) -> Any:
    """Return the object that one distribution registered under an entry-point group and name.

    Args:
        group: The entry-point group.
        name: The registered name.
        thing: Kind of the object, for error messages: ``"judge"``.
        known: Names that exist, for error messages.
        error: Raised if no distribution or several registered the name, or if it cannot be loaded.
    """
    points = _entry_points(group=group, name=name)
    if len(points) != 1:
        names = sorted({*known, *plugin_names(group)})
        rule = f"{thing} must be one of {', '.join(names)}, got {name!r:.80}"
        way_out = (
            f"uninstall all but one distribution that registers it under {group!r}"
            if points
            else f"install a distribution that registers it under the entry-point group {group!r}"
        )
        raise error(f"{rule}; {way_out}.")
    try:
        return points[0].load()
    except (ImportError, AttributeError) as broken:
        raise error(
            f"{thing} {name!r} cannot be loaded from {points[0].value!r}, which fails: {broken}."
        ) from broken


# Torch and transformers, loaded only when a network is trained or exported, and kept from printing
# or reseeding anything.


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
