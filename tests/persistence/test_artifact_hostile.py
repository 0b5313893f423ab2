"""Whatever is done to an artifact, it is refused with an ArtifactError or behaves as before.

Nothing is ever run, imported or written.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mildroute.exceptions import ArtifactError
from mildroute.persistence import load_router, registry, save_router
from mildroute.persistence.artifact import read_manifest
from persistence.attacks import DAMAGE, FORGERIES, HARMLESS, Attack, put
from persistence.stored import (
    CLASSES,
    ToyRouter,
    assert_same_router,
    fitted_toy,
    forged_document,
    problem,
)
from tests.support.interpreter_guard import nothing_runs

QUERIES = problem(rows=20)[0]


@pytest.fixture(scope="module", autouse=True)
def toy_on_the_allow_list() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "built_in_classes", lambda: CLASSES)
        with pytest.raises(
            ArtifactError
        ):  # entry points are looked up once before anything is watched
            registry.resolve_class("unknown")
        yield


@pytest.fixture(scope="module")
def router() -> ToyRouter:
    return fitted_toy()


@pytest.fixture(scope="module")
def original(router: ToyRouter, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_router(
        router, tmp_path_factory.mktemp("original") / "router", card={"metrics": {"loss": 0.5}}
    )


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original, tmp_path / "router")


def cases(attacks: dict[str, Attack]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "attack", attacks.values(), ids=[name.encode("unicode_escape").decode() for name in attacks]
    )


def test_there_are_enough_attacks() -> None:
    assert len(DAMAGE) + len(FORGERIES) > 400


@cases(DAMAGE)
def test_damage_is_refused_or_without_effect(
    attack: Attack, folder: Path, router: ToyRouter
) -> None:
    attack(folder)
    with nothing_runs():
        try:
            loaded = load_router(folder)
        except ArtifactError:
            return
    assert_same_router(loaded, router, QUERIES)


@cases(FORGERIES)
def test_a_forgery_is_refused(attack: Attack, folder: Path) -> None:
    attack(folder)
    with nothing_runs(), pytest.raises(ArtifactError) as refusal:
        load_router(folder)
    assert 20 < len(str(refusal.value)) < 1000


@cases(HARMLESS)
def test_what_does_not_matter_does_not_matter(
    attack: Attack, folder: Path, router: ToyRouter
) -> None:
    attack(folder)
    with nothing_runs():
        loaded = load_router(folder)
    assert_same_router(loaded, router, QUERIES)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are a matter of POSIX")
@pytest.mark.parametrize("name", ["router.json", "weights.safetensors"])
def test_a_pipe_does_not_hang_the_loader(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(ArtifactError, match="regular file"):
        load_router(folder)


def test_a_weights_file_above_the_limit_is_not_read(folder: Path) -> None:
    with pytest.raises(ArtifactError, match="may have 10 bytes, got"):
        load_router(folder, weights_limit=10)


def test_a_future_schema_names_both_versions_and_the_way_out(folder: Path) -> None:
    put(7, "schema")(folder)
    with pytest.raises(ArtifactError, match="must have schema 4, got 7; upgrade mildroute"):
        load_router(folder)


def test_a_router_of_an_earlier_version_is_refused_with_the_way_out(folder: Path) -> None:
    put(1, "schema")(folder)
    with pytest.raises(
        ArtifactError, match="got 1, from an earlier version of mildroute; fit the router again"
    ):
        load_router(folder)


def test_experts_named_like_paths_are_only_names(folder: Path) -> None:
    names = ["../../etc/passwd", "$(reboot)", "a\0b"]
    with forged_document(folder) as document:
        document["experts"] = document["router"]["attributes"]["experts_"]["values"] = names
    with nothing_runs():
        assert load_router(folder).experts_.tolist() == names


def test_no_constructor_or_setter_sees_what_a_file_says(
    folder: Path, router: ToyRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)  # the signature stays
        def refuse(*_: object, **__: object) -> None:
            raise AssertionError(f"{method} called by the loader")

        return refuse

    for method in ("__init__", "__setattr__", "__setstate__", "set_params", "fit"):
        monkeypatch.setattr(ToyRouter, method, refusing(getattr(ToyRouter, method)))
    assert load_router(folder).experts_.tolist() == router.experts_.tolist()


def test_a_parameter_without_entry_takes_its_default_and_one_without_default_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with forged_document(folder) as document:
        del document["router"]["params"]["scale"]
    assert load_router(folder).get_params()["scale"] == 1.0
    monkeypatch.setattr(
        ToyRouter.__init__, "__kwdefaults__", {"layers": (3,), "members": None, "extra": None}
    )
    with pytest.raises(ArtifactError, match="needs the parameter 'scale'"):
        load_router(folder)


def test_reading_the_manifest_needs_no_weights(folder: Path) -> None:
    (folder / "weights.safetensors").unlink()
    assert read_manifest(folder)["metrics"] == {"loss": 0.5}


def test_a_fresh_interpreter_loads_and_predicts_without_torch(tmp_path: Path) -> None:
    from mildroute.routers.regression import RegressionRouter

    X, costs = problem()
    router = RegressionRouter().fit(X, costs)
    folder = save_router(router, tmp_path / "router")
    code = "import sys; from mildroute.persistence.artifact import load_router\n"
    code += "print(load_router(sys.argv[1]).predict([[0.0] * 5])[0], 'torch' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True
    )
    assert (run.stdout, run.stderr) == (f"{router.predict(np.zeros((1, 5)))[0]} False\n", "")
