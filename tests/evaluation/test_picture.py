"""Any name can stand in the picture."""

from __future__ import annotations

import pytest

from mildroute.evaluation.frontier import frontier_of
from mildroute.evaluation.picture import frontier_svg


@pytest.mark.parametrize("name", [r"a$\frac$ & b", "a$1$", "전문가", "<b>", "x" * 200, "owner/model"])
def test_names_are_drawn_as_they_are(name: str) -> None:
    scores, dollars = [[0, 1], [1, 1]], [[0.001, 0.01], [0.001, 0.01]]
    picture = frontier_svg(frontier_of([[1, 1], [0, 0]], scores, dollars, experts=["small", name]))
    assert "<b>" not in picture
    assert picture.count("var(--accent)") > 1
    shown = name.rpartition("/")[2][:10].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert shown in picture
