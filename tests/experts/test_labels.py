from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mildroute.experts.labels import label_text


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("a", "a"),
        (np.str_("a"), "a"),
        (np.int32(2), "2"),
        (np.float64(2.0), "2"),
        (0.5, "0.5"),
        (True, "True"),
        (np.bool_(False), "False"),
    ],
)
def test_labels_are_written_alike_wherever_they_come_from(label: Any, text: str) -> None:
    assert label_text(label) == text
