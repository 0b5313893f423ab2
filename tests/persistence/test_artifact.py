"""A stored router comes back bit for bit, or is refused before anything is written."""

from __future__ import annotations

import inspect
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.cluster import KMeans

import mildroute
from mildroute.exceptions import ArgumentError, ArtifactError
from mildroute.persistence import load_router, registry, save_router
from mildroute.routers.base import RouterMixin
from mildroute.routers.features import TopicFeatures
from mildroute.routers.mild import MildRouter
from persistence.stored import (
    CLASSES,
    ToyRouter,
    assert_same_router,
    document_of,
    fitted_toy,
    problem,
)

# Parameters that shorten a search, for the routers that have them.
QUICK = {"cv": 2, "alpha": 0.01, "router": MildRouter(cv=2, alpha=0.01)}


@pytest.fixture(autouse=True)
def toy_on_the_allow_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "built_in_classes", lambda: CLASSES)


def routers_of_the_house() -> list[type[Any]]:
    """Every router that can be made without arguments."""
    empty = inspect.Parameter.empty
    return [
        cls
        for cls in registry.built_in_classes().values()
        if issubclass(cls, RouterMixin)
        and all(value.default is not empty for value in inspect.signature(cls).parameters.values())
    ]


def fitted(cls: type[Any], X: Any, costs: Any) -> Any:
    router = cls()
    router.set_params(
        **{name: value for name, value in QUICK.items() if name in router.get_params()}
    )
    try:
        return router.fit(X, costs)
    except NotImplementedError:
        pytest.skip("a base of other routers")


@pytest.mark.parametrize("cls", routers_of_the_house(), ids=lambda cls: cls.__name__)
def test_every_router_comes_back_bit_for_bit(cls: type[Any], tmp_path: Path) -> None:
    X, costs = problem(rows=80)
    router = fitted(cls, X, costs)
    loaded = load_router(save_router(router, tmp_path / "router"))
    for queries in (
        X,
        np.random.default_rng(1).normal(size=(40, 5)),
        X[:1],
        X[:7].astype(np.float32),
    ):
        assert_same_router(loaded, router, queries)


@pytest.mark.parametrize("cls", routers_of_the_house(), ids=lambda cls: cls.__name__)
def test_every_router_fitted_on_sparse_rows_comes_back_bit_for_bit(
    cls: type[Any], tmp_path: Path
) -> None:
    X, costs = problem(rows=80)
    rows = sparse.csr_array(np.where(X > 0, X, 0))
    router = fitted(cls, rows, costs)
    assert_same_router(load_router(save_router(router, tmp_path / "router")), router, rows)


def test_a_router_with_every_kind_of_state_comes_back_bit_for_bit(tmp_path: Path) -> None:
    router = fitted_toy()
    loaded: Any = load_router(save_router(router, tmp_path / "router"))
    assert_same_router(loaded, router, problem()[0])
    assert loaded.layers == (4,)
    assert type(loaded.steps_) is np.int32
    assert loaded.alpha_ == np.inf
    assert np.isnan(loaded.tried_["alpha"][1])
    assert loaded.tried_["paid"].dtype == np.float16
    assert loaded.weights_.flags.c_contiguous
    assert isinstance(loaded.members_[0], ToyRouter)
    assert isinstance(loaded.topics_, TopicFeatures)
    assert not hasattr(loaded, "_seen")


def test_a_loaded_router_can_be_stored_and_fitted_again(tmp_path: Path) -> None:
    router = fitted_toy()
    first = save_router(router, tmp_path / "first")
    loaded: Any = load_router(first)
    second = save_router(loaded, tmp_path / "second")
    for name in ("router.json", "weights.safetensors", "CARD.md"):
        assert (first / name).read_bytes() == (second / name).read_bytes()
    assert_same_router(loaded.fit(*problem()), router, problem()[0])


def test_names_of_experts_and_columns_come_back(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    X, costs = problem()
    names = ["gpt|4", "línea\nnueva", ""]
    router = ToyRouter().fit(
        pandas.DataFrame(X, columns=list("abcde")), pandas.DataFrame(costs, columns=names)
    )
    loaded: Any = load_router(save_router(router, tmp_path / "router"))
    assert loaded.experts_.tolist() == names
    assert loaded.experts_.dtype == object
    assert loaded.feature_names_in_.tolist() == list("abcde")


def test_the_manifest_says_what_the_router_is(tmp_path: Path) -> None:
    router = fitted_toy()
    router.data_hash_, router.reward_ = "sha256:abc", "gap"
    manifest = document_of(
        save_router(
            router, tmp_path / "router", card={"prices": {"date": "2026-01-01"}, "rows": 60}
        )
    )
    assert (manifest["schema"], manifest["kind"], manifest["n_features_in"]) == (
        4,
        "mildroute-router",
        5,
    )
    assert manifest["experts"] == ["expert_0", "expert_1", "expert_2"]
    assert (manifest["data_hash"], manifest["reward"], manifest["alpha"]) == (
        "sha256:abc",
        "gap",
        "inf",
    )
    assert (manifest["prices"], manifest["metrics"], manifest["rows"]) == (
        {"date": "2026-01-01"},
        None,
        60,
    )
    assert set(manifest["versions"]) == {"mildroute", "numpy", "scikit-learn", "python"}
    assert manifest["versions"]["mildroute"] == mildroute.__version__
    assert manifest["weights"]["tensors"]["router.weights_"] == [[5, 3], "float32"]
    assert manifest["router"]["class"] == "ToyRouter"


class Unregistered(ToyRouter):
    pass


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("model_", KMeans(), r"router\.model_ must be .* got sklearn\.cluster\._kmeans\.KMeans"),
        ("model_", [{"inner": KMeans()}], r"router\.model_\.0\.inner must be"),
        ("model_", Unregistered(), r"router\.model_ must be .*Unregistered"),
        ("rows_", sparse.eye(3), r"router\.rows_ must be"),
        ("choose_", len, r"router\.choose_ must be"),
        ("names_", {1: "a"}, r"router\.names_ must have strings as keys, got 1"),
        ("names_", {"a", "b"}, r"router\.names_ must be"),
        (
            "objects_",
            np.array([1, "a"], dtype=object),
            r"router\.objects_ must have numbers or strings",
        ),
        (
            "complex_",
            np.ones(2) * 1j,
            r"router\.complex_ must have numbers, booleans or strings, got dtype complex128",
        ),
        ("dates_", np.array(["2026-01-01"], dtype="M8[D]"), r"router\.dates_ must have numbers"),
        ("count_", 2**64, r"router\.count_ must fit in 64 bits"),
        ("_cache", {}, "'_cache' of ToyRouter is not a fitted attribute"),
        ("width", 3, "'width' of ToyRouter is not a fitted attribute"),
        ("dunder__", 3, "'dunder__' of ToyRouter is not a fitted attribute"),
        ("predict", 3, "'predict' of ToyRouter is not a fitted attribute"),
        ("scale", np.random.RandomState(0), r"router\.scale must be"),
        ("experts_", ["a", "b", "c"], "must contain a fitted router"),
    ],
)
def test_what_cannot_be_stored_is_named(
    name: str, value: Any, message: str, tmp_path: Path
) -> None:
    router = fitted_toy()
    vars(router)[name] = value
    with pytest.raises(ArtifactError, match=message):
        save_router(router, tmp_path / "router")
    assert list(tmp_path.iterdir()) == []


def test_a_property_of_the_class_is_not_stored_as_data(tmp_path: Path) -> None:
    router = fitted_toy()
    vars(router)["width_"] = 3
    with pytest.raises(ArtifactError, match="'width_' of ToyRouter is a method or property"):
        save_router(router, tmp_path / "router")


def test_state_that_contains_itself_is_refused(tmp_path: Path) -> None:
    router = fitted_toy()
    router.loop_ = []
    router.loop_.append(router.loop_)
    with pytest.raises(ArtifactError, match="check for a circular reference"):
        save_router(router, tmp_path / "router")


def test_a_router_that_is_not_fitted_or_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="call fit first"):
        save_router(ToyRouter(), tmp_path / "router")
    with pytest.raises(ArtifactError, match="Unregistered"):
        save_router(Unregistered().fit(*problem()), tmp_path / "router")


@pytest.mark.parametrize(
    "card",
    [
        {"price": {}},
        {"prices": 3},
        {"rows": True},
        {"rows": "60"},
        {"metrics": {"loss": KMeans}},
        {"notes": 3},
    ],
)
def test_a_card_with_other_things_is_refused(card: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="card"):
        save_router(fitted_toy(), tmp_path / "router", card=card)


def test_a_stored_router_is_replaced_and_an_empty_folder_filled(tmp_path: Path) -> None:
    (tmp_path / "router").mkdir()
    folder = save_router(fitted_toy(), tmp_path / "router", card={"rows": 1})
    assert document_of(save_router(fitted_toy(), folder, card={"rows": 2}))["rows"] == 2
    assert sorted(path.name for path in folder.iterdir()) == [
        "CARD.md",
        "router.json",
        "weights.safetensors",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["router"]


def test_parents_are_made_and_links_and_dots_in_the_users_path_are_followed(tmp_path: Path) -> None:
    folder = save_router(fitted_toy(), tmp_path / "a" / "b")
    (tmp_path / "current").symlink_to(folder)
    save_router(fitted_toy(), tmp_path / "a" / ".." / "current", card={"rows": 7})
    assert (tmp_path / "current").is_symlink()
    assert document_of(folder)["rows"] == 7
    assert load_router(str(tmp_path / "a" / ".." / "current")).experts_.shape == (3,)


@pytest.mark.parametrize(
    "content",
    [{"thesis.tex": "x"}, {"router.json": "{}"}, {"router.json": "not JSON"}, {"CARD.md": "x"}],
)
def test_a_folder_that_is_no_stored_router_is_left_alone(
    content: dict[str, str], tmp_path: Path
) -> None:
    for name, text in content.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ArtifactError, match="choose another folder"):
        save_router(fitted_toy(), tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == content


def test_a_stored_router_with_other_files_beside_it_is_left_alone(tmp_path: Path) -> None:
    save_router(fitted_toy(), tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ArtifactError, match=r"notes\.txt"):
        save_router(fitted_toy(), tmp_path)


def test_a_file_in_the_way_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "router").write_text("mine")
    for folder in (
        tmp_path / "router",
        tmp_path / "router" / "below",
        tmp_path / "nul\0",
        "/proc/none/router",
    ):
        with pytest.raises(ArtifactError, match="choose another"):
            save_router(fitted_toy(), folder)
    assert (tmp_path / "router").read_text() == "mine"


@pytest.mark.parametrize("call", [0, 1, 2, 3, 4])
def test_a_disk_that_fails_at_any_time_leaves_a_whole_router(
    call: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_router(fitted_toy(), tmp_path / "router", card={"rows": 1})
    calls = iter(range(10))

    def fail_once(_: object) -> None:
        if next(calls) == call:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail_once)
    with pytest.raises(ArtifactError, match="No space left on device"):
        save_router(fitted_toy(), folder, card={"rows": 2})
    assert load_router(folder).experts_.shape == (3,)
    assert document_of(folder)["rows"] == (1 if call < 4 else 2)


def test_a_rename_that_fails_puts_the_old_router_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_router(fitted_toy(), tmp_path / "router", card={"rows": 1})
    rename = Path.rename

    def fail_for_new(self: Path, target: Path) -> Path:
        if self.name.endswith(".new"):
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_for_new)
    with pytest.raises(ArtifactError, match="Input/output error"):
        save_router(fitted_toy(), folder, card={"rows": 2})
    assert document_of(folder)["rows"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["router"]


def test_what_is_missing_is_named() -> None:
    with pytest.raises(
        ArtifactError, match=r"no such folder must be a folder with a readable router\.json"
    ):
        load_router("no such folder")


def test_the_manifest_is_plain_ascii_json(tmp_path: Path) -> None:
    text = (save_router(fitted_toy(), tmp_path / "router") / "router.json").read_bytes()
    assert text.isascii()
    assert json.loads(text)["router"]["params"]["extra"]["items"] == {"note": "é"}


@pytest.mark.parametrize("folder", [5, None, ["a"]])
def test_a_folder_is_a_path(folder: Any) -> None:
    with pytest.raises(ArgumentError, match=r"folder must be a path, got .*save_router wrote"):
        load_router(folder)
