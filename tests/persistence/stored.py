"""A small router with every kind of state, the artifact made of it, and the means to tamper with
one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as parse_weights
from sklearn.base import BaseEstimator

from mildroute.persistence.artifact import Router
from mildroute.persistence.manifest import digest_of
from mildroute.persistence.registry import built_in_classes
from mildroute.persistence.weights import describe, tensors_to_bytes
from mildroute.routers.base import RouterMixin
from mildroute.routers.features import TopicFeatures


class ToyRouter(RouterMixin, BaseEstimator):
    """Adds up topics, weights in an unusual layout, and its members."""

    _transient = ("_seen",)
    default_ = 0

    def __init__(
        self, *, scale: float = 1.0, layers: Any = (3,), members: Any = None, extra: Any = None
    ) -> None:
        self.scale = scale
        self.layers = layers
        self.members = members
        self.extra = extra

    def _fit(self, X: Any, costs: Any, sample_weight: Any) -> None:  # noqa: ARG002
        self._seen = X
        self.topics_ = TopicFeatures(clusters=self.layers, random_state=0).fit(X)
        self.topic_weights_ = np.linspace(-1, 1, 2 * self.layers[0] * costs.shape[1]).reshape(
            self.layers[0], -1
        )[:, ::-2]
        self.weights_ = np.asfortranarray(
            np.linalg.lstsq(X, -costs, rcond=None)[0].astype(np.float32)
        )
        self.members_ = [member.fit(X, costs) for member in self.members or []]
        self.alpha_, self.steps_, self.tried_ = (
            np.inf,
            np.int32(3),
            {"alpha": [0.1, np.nan], "paid": np.float16([1, 2]), "ok": True},
        )

    def _scores(self, X: Any) -> Any:
        own = self.topics_.transform(X) @ self.topic_weights_ + X @ self.weights_ * self.scale
        return own + sum(member.decision_function(X) for member in self.members_)

    @property
    def width_(self) -> int:
        return self.n_features_in_


# The allow-list with the toy on it.
CLASSES = {**built_in_classes(), "ToyRouter": ToyRouter}


def problem(rows: int = 60, experts: int = 3) -> tuple[Any, Any]:
    """Vectors, and costs that are low for the expert of the largest of the first coordinates."""
    random = np.random.default_rng(0)
    X = random.normal(size=(rows, 5))
    return X, 0.5 * random.random((rows, experts)) + (
        X[:, :experts] < X[:, :experts].max(axis=1, keepdims=True)
    )


def fitted_toy() -> ToyRouter:
    router: ToyRouter = ToyRouter(
        scale=0.5, layers=(4,), members=[ToyRouter()], extra={"note": "é"}
    ).fit(*problem())
    return router


def assert_same_router(loaded: Router, router: Any, X: Any) -> None:
    """Bit for bit the same answers, and the same parameters."""
    for method in ("predict", "predict_proba", "rank", "decision_function"):
        before, after = getattr(router, method)(X), getattr(loaded, method)(X)
        assert before.dtype == after.dtype
        assert before.tobytes() == after.tobytes()
    assert type(loaded) is type(router)
    assert loaded.experts_.tolist() == router.experts_.tolist()
    assert repr(loaded.get_params()) == repr(router.get_params())


def document_of(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "router.json").read_text())
    return document


def write_document(folder: Path, document: dict[str, Any]) -> None:
    """As a forger would: with a digest that fits."""
    document["sha256"] = digest_of(document)
    (folder / "router.json").write_text(json.dumps(document))


@contextlib.contextmanager
def forged_document(folder: Path) -> Iterator[dict[str, Any]]:
    document = document_of(folder)
    yield document
    write_document(folder, document)


def write_weights(folder: Path, data: bytes, tensors: dict[str, Any] | None = None) -> None:
    """A weights file whose digest and, where given, description fit."""
    (folder / "weights.safetensors").write_bytes(data)
    with forged_document(folder) as document:
        document["weights"]["sha256"] = hashlib.sha256(data).hexdigest()
        if tensors is not None:
            document["weights"]["tensors"] = tensors


@contextlib.contextmanager
def forged_tensors(folder: Path, *, described: bool) -> Iterator[dict[str, Any]]:
    tensors = parse_weights((folder / "weights.safetensors").read_bytes())
    yield tensors
    write_weights(folder, tensors_to_bytes(tensors), describe(tensors) if described else None)
