"""Settings of the whole suite.

One thread, the same examples on every run, and slow tests only where they are asked for.
"""

from __future__ import annotations

import contextlib
import os

import pytest
from hypothesis import settings

# The environment of LiteLLM's tests is without it.
with contextlib.suppress(ModuleNotFoundError):
    import torch

    torch.set_num_threads(1)
# Ray's own 15 starves its workers while other tests use both cores.
os.environ.setdefault("RAY_worker_niceness", "0")
settings.register_profile("suite", derandomize=True, deadline=None)
settings.load_profile("suite")
# Files that take long for what they protect: nox -s nightly runs them, the gate does not.
NIGHTLY = (
    # Every benchmark once, quickly: processes, servers, fits.
    "tests/test_benchmarks.py",
    "tests/test_peers.py",
    # Pages and examples word for word; README runs in nox -s package.
    "tests/test_gallery.py",
    "tests/test_plugins.py",
    "tests/test_readme.py",
    "tests/test_tutorial_",
    # Helm, Kubernetes schemas, Prometheus, scanners.
    "tests/test_deploy_tools.py",
    # Clusters and kills of processes.
    "tests/ray/",
    "tests/cli/test_serve_workers.py",
    "tests/gateway/test_chaos.py",
    # Tables of tens of thousands of rows.
    "tests/costs/test_real_files.py",
    # Cells of the paper.
    "paper/tests/test_network",
)
# Files that take long come first, so that no process waits at the end for the other one's.
LONGEST = ("test_front_door.py", "test_fitting.py", "test_sandbox.py", "test_unit_tests.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--slow``."""
    parser.addoption("--slow", action="store_true", help="run the slow tests, and only those")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker ``slow``."""
    config.addinivalue_line(
        "markers", "slow: takes minutes; nox -s nightly runs it, the gate does not"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep fast tests, or slow ones with ``--slow``, and start with the longest files."""
    wanted = config.getoption("--slow")
    root = config.rootpath
    for item in items:
        if item.path.relative_to(root).as_posix().startswith(NIGHTLY):
            item.add_marker("slow")
    is_slow = [item.get_closest_marker("slow") is not None for item in items]
    left_out = [item for item, slow in zip(items, is_slow, strict=True) if slow != wanted]
    items[:] = [item for item, slow in zip(items, is_slow, strict=True) if slow == wanted]
    config.hook.pytest_deselected(items=left_out)
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONGEST)))
    # Five hundred examples cover no line that the tests by hand do not, and a tracer makes them
    # twice as slow.
    for item in items:
        if item.get_closest_marker("hypothesis") is not None:
            item.add_marker("no_cover")
