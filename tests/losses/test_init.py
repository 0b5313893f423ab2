from __future__ import annotations

import runpy
import sys

import pytest

import mildroute.losses
from mildroute.exceptions import MissingExtraError


def test_without_torch_the_error_names_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[torch\]'"):
        runpy.run_path(str(mildroute.losses.__file__))


def test_every_promised_name_exists() -> None:
    assert all(hasattr(mildroute.losses, name) for name in mildroute.losses.__all__)
