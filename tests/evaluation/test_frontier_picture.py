"""Any name can stand in the picture."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from mildroute.evaluation.cost_quality import Point
from mildroute.evaluation.frontier import measure_frontier
from mildroute.evaluation.frontier_picture import frontier_svg


@pytest.mark.parametrize(
    "name", [r"a$\frac$ & b", "a$1$", "전문가", "<b>", "x" * 200, "owner/model"]
)
def test_names_are_drawn_as_they_are(name: str) -> None:
    scores, dollars = [[0, 1], [1, 1]], [[0.001, 0.01], [0.001, 0.01]]
    picture = frontier_svg(
        measure_frontier([[1, 1], [0, 0]], scores, dollars, experts=["small", name])
    )
    assert "<b>" not in picture
    assert picture.count("var(--accent)") > 1
    shown = (
        name.rpartition("/")[2][:10].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    )
    assert shown in picture


def test_experts_that_no_mix_would_use_have_names_too_where_there_is_room() -> None:
    scores = [[1, 0.1, 0.6, 1]] * 2
    dollars = [[0.001, 0.002, 0.005, 0.01]] * 2
    picture = frontier_svg(
        measure_frontier([[0, 0]], scores, dollars, experts=["cheap", "awful", "middling", "dear"])
    )
    assert all(name in picture for name in ("cheap", "awful", "middling", "dear"))


def test_names_that_would_overlap_are_left_out() -> None:
    scores = [[0.5, 0.51, 0.52, 1.0]] * 2
    dollars = [[0.001, 0.00101, 0.00102, 0.01]] * 2
    picture = frontier_svg(
        measure_frontier([[0, 0]], scores, dollars, experts=["first", "second", "third", "best"])
    )
    assert sum(name in picture for name in ("first", "second", "third")) == 1


def test_spots_are_invisible_markers_in_the_order_given() -> None:
    frontier = measure_frontier([[0, 1]], [[0, 1], [1, 1]], [[0.001, 0.01]] * 2)
    spots = [Point("", 1.0, 0.5), Point("", 10.0, 1.0), Point("", 5.0, 0.8)]
    picture = ElementTree.fromstring(frontier_svg(frontier, spots=spots))  # noqa: S314
    (group,) = [each for each in picture.iter() if each.get("class") == "spots"]
    markers = [each for each in group.iter() if each.tag.endswith("use")]
    positions = [float(marker.get("x", "nan")) for marker in markers]
    assert positions[0] < positions[2] < positions[1]
    assert all("opacity: 0" in marker.get("style", "") for marker in markers)
