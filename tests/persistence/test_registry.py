"""Which classes may be stored, and under which names."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mildroute.encoders.base import Encoder
from mildroute.exceptions import ArtifactError
from mildroute.persistence import load_router, save_router
from mildroute.persistence.registry import built_in_classes, resolve_class, storage_name
from mildroute.routers.base import RouterMixin
from mildroute.routers.features import TopicFeatures
from mildroute.routers.out_of_distribution import OutcomeModel
from persistence.stored import ToyRouter, document_of

PLUGIN = """
import numpy as np

class Plugin:
    def __init__(self, *, favorite=0):
        self.favorite = favorite
    def get_params(self, deep=True):
        return {"favorite": self.favorite}
    def fit(self, X, y):
        self.experts_ = np.array([f"expert_{k}" for k in range(len(y[0]))])
        return self
    def predict(self, X):
        return np.full(len(X), self.favorite)

not_a_class = 3
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An installed distribution that inherits nothing of ours and registers entry points, some of
    them bad.
    """
    install(
        tmp_path / "one",
        "favorite = toy_plugin:Plugin\nTopicFeatures = toy_plugin:Plugin\nbroken ="
        " toy_plugin:Missing\n",
    )
    (tmp_path / "one" / "toy_plugin.py").write_text(PLUGIN)
    with (tmp_path / "one" / "one-1.0.dist-info" / "entry_points.txt").open("a") as points:
        points.write(
            "absent = no_such_module:Router\nnumber = toy_plugin:not_a_class\nshared ="
            " toy_plugin:Plugin\n"
        )
    install(tmp_path / "two", "shared = toy_plugin:Plugin\n")
    for name in ("one", "two"):
        monkeypatch.syspath_prepend(tmp_path / name)
    yield sys.modules
    sys.modules.pop("toy_plugin", None)


def install(site: Path, points: str) -> None:
    info = site / f"{site.name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {site.name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[mildroute.routers]\n{points}")


def test_every_built_in_class_is_a_router_or_a_part_of_one_and_has_its_name() -> None:
    assert {"TopicFeatures", "MildRouter", "TfidfEncoder"} <= set(built_in_classes())
    for name, cls in built_in_classes().items():
        assert issubclass(cls, (Encoder, OutcomeModel, RouterMixin, TopicFeatures))
        assert (storage_name(cls), resolve_class(name)) == (name, cls)


def test_no_two_classes_of_the_house_share_a_name() -> None:
    defined = [
        cls for cls in all_subclasses(RouterMixin) if cls.__module__.startswith("mildroute.")
    ]
    assert len({cls.__name__ for cls in defined}) == len(defined)


def all_subclasses(cls: type[Any]) -> set[type[Any]]:
    return {cls}.union(*(all_subclasses(below) for below in cls.__subclasses__()))


def test_a_class_from_elsewhere_has_no_name() -> None:
    assert storage_name(ToyRouter) is None
    assert storage_name(type("TopicFeatures", (TopicFeatures,), {})) is None


def test_a_registered_router_comes_back_under_its_entry_points_name(
    plugin: dict[str, Any], tmp_path: Path
) -> None:
    import toy_plugin  # type: ignore[import-not-found]

    router = toy_plugin.Plugin(favorite=1).fit(np.zeros((2, 1)), np.zeros((2, 3)))
    folder = save_router(router, tmp_path / "router")
    assert document_of(folder)["router"]["class"] == "favorite"
    assert load_router(folder).predict([[0.0]]).tolist() == [1]


def test_a_plug_in_is_imported_only_where_it_is_asked_for(plugin: dict[str, Any]) -> None:
    assert resolve_class("TopicFeatures") is TopicFeatures
    assert storage_name(dict) is None
    assert "toy_plugin" not in plugin
    assert resolve_class("favorite").__name__ == "Plugin"
    assert "toy_plugin" in plugin


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("broken", "cannot be loaded from 'toy_plugin:Missing'"),
        ("absent", "cannot be loaded from 'no_such_module:Router'"),
        ("number", "must name a scikit-learn estimator class"),
        ("shared", "uninstall all but one"),
        ("toy_plugin:Plugin", "install a distribution"),
        ("Plugin", "install a distribution"),
    ],
)
def test_a_bad_entry_point_is_refused(plugin: dict[str, Any], name: str, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        resolve_class(name)
