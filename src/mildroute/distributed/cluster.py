"""Plain functions over Ray Core.

One task a call, one processor a task, on a cluster or on this machine.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

from mildroute._optional import needs_extra

__all__ = ["connected", "load_ray", "on_cluster", "quiet_data"]


_Found = TypeVar("_Found")
# Calls that wait for each processor; more would only fill the scheduler.
_AHEAD = 2
# Idle processes that a local cluster keeps.
_IDLE = 16


def load_ray() -> Any:
    """The module ``ray``, or an error that says how to install it."""
    # On other systems than Linux Ray refuses clusters unless told; here it never builds one by
    # itself.
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    # Nothing is reported to anyone unless the user wants it.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # The future default, chosen today: a task without graphics processors sees the environment as
    # it is.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    with needs_extra("ray", extra="ray", user="mildroute.distributed"):
        return importlib.import_module("ray")


@contextmanager
def connected(processors: int | None = None, *, store_bytes: int | None = None) -> Iterator[Any]:
    """Ray, connected.

    To what is connected already, to the cluster of ``RAY_ADDRESS``, or to a local one that ends
    with the region.

    Args:
        processors: Processors of a local one; none for all.
        store_bytes: Size of the object store of a local one; none for Ray's choice.

    Yields:
        The module ``ray``.
    """
    ray = load_ray()
    if ray.is_initialized():
        yield ray
        return
    if os.environ.get("RAY_ADDRESS"):
        ray.init(log_to_driver=False, logging_level="ERROR")
    else:
        ray.init(
            address="local",
            num_cpus=processors,
            object_store_memory=store_bytes,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            # Idle processes stay: to start one takes seconds, and jobs of many short rounds would
            # pay that in every round.
            _system_config={"num_workers_soft_limit": _IDLE},
        )
    try:
        yield ray
    finally:
        ray.shutdown()


@contextmanager
def quiet_data(**settings: Any) -> Iterator[None]:
    """Ray Data without bars and reports beside our own.

    What goes wrong is raised, and it would log that as well, with all of its frames.

    Args:
        settings: Further settings of its ``DataContext`` while this lasts.
    """
    from ray import data

    context, wanted = data.DataContext.get_current(), {"enable_progress_bars": False, **settings}
    levels = {"ray": logging.ERROR, "ray.data": logging.CRITICAL}
    before = (
        {name: getattr(context, name) for name in wanted},
        {name: logging.getLogger(name).level for name in levels},
    )
    _set_data(context, wanted, levels)
    try:
        yield
    finally:
        _set_data(context, *before)


def _set_data(context: Any, settings: dict[str, Any], levels: dict[str, int]) -> None:
    for name, value in settings.items():
        setattr(context, name, value)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def on_cluster(
    call: Callable[..., _Found],
    arguments: Sequence[tuple[Any, ...]],
    *,
    processors: int | None = None,
) -> Iterator[_Found]:
    """Results of calls as they come, each call a task with one processor.

    Args:
        call: A function of an importable module.
        arguments: Arguments of each call.
        processors: Processors of a local cluster, where there is no other.
    """
    with connected(processors) as ray:
        task = ray.remote(num_cpus=1, max_retries=3)(call)
        most = _AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
        waiting = iter(arguments)
        running: list[Any] = []
        while True:
            running += [task.remote(*each) for each in islice(waiting, most - len(running))]
            if not running:
                return
            (ready, *_), running = ray.wait(running, num_returns=1)
            yield _found(ray, ready)


def _found(ray: Any, ready: Any) -> Any:
    try:
        return ray.get(ready)
    except ray.exceptions.RayTaskError as failed:
        # The error itself, as it would be without Ray.
        raise failed.cause from failed
