"""What the room offers by name, loaded when it is asked for."""

from __future__ import annotations

import importlib
import subprocess
import sys
from types import ModuleType

import pytest

import mildroute.evaluation


def test_every_name_is_an_object_and_never_the_module_of_that_name() -> None:
    for module in ("comparison", "cost_savings", "policy_evaluation", "intervals", "frontier"):
        importlib.import_module(f"mildroute.evaluation.{module}")
    for name in mildroute.evaluation.__all__:
        assert not isinstance(getattr(mildroute.evaluation, name), ModuleType), name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        mildroute.evaluation.nonsense  # noqa: B018


def test_metrics_load_neither_tables_nor_pictures_nor_torch() -> None:
    code = (
        "import sys, mildroute.evaluation as e; e.regret, e.savings, e.compare;"
        " print(sorted(set(sys.argv[1:]) & set(sys.modules)))"
    )
    heavy = ["mildroute.costs", "mildroute.encoders", "matplotlib", "torch", "jinja2"]
    run = subprocess.run(
        [sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"
