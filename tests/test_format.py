"""Results as plain values for JSON."""

from __future__ import annotations

import numpy as np

from mildroute._format import to_jsonable
from mildroute.evaluation.resampling import Interval


def test_nested_results_become_plain_values_and_numbers_unknown_to_json_none() -> None:
    value = {
        1: (Interval(0.5, -np.inf, np.nan, 0.9), np.array([1.0, np.nan])),
        "flag": np.bool_(True),
        "name": "x",
        "none": None,
    }
    assert to_jsonable(value) == {
        "1": [{"value": 0.5, "low": None, "high": None, "confidence": 0.9}, [1.0, None]],
        "flag": True,
        "name": "x",
        "none": None,
    }
