from __future__ import annotations

from typing import Any

import pytest

from mildroute.exceptions import ArgumentError
from mildroute.experts.import_path import import_object


@pytest.mark.parametrize(
    "path",
    [
        "os",
        "os:",
        ":x",
        "os system",
        "os:system()",
        "../x:y",
        "no_such_module_here:x",
        "os:nothing",
        7,
    ],
)
def test_a_path_that_leads_nowhere_is_refused(path: Any) -> None:
    with pytest.raises(ArgumentError, match=r"import path must be written as|cannot be imported"):
        import_object(path)
