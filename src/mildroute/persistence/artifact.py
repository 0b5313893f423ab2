"""The stored router: manifest, weights and model card, with digests and a schema version."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

import mildroute
from mildroute._files import names_in, read_file, write_folder
from mildroute._format import pluralize, to_jsonable
from mildroute.exceptions import ArgumentError, ArtifactError
from mildroute.persistence.arrays import describe, tensors_from_bytes, tensors_to_bytes
from mildroute.persistence.serialization import decode, encode

__all__ = [
    "CARD",
    "KIND",
    "MANIFEST",
    "SCHEMA",
    "SIGNATURE",
    "WEIGHTS",
    "Router",
    "build_manifest",
    "check_manifest",
    "check_replaceable",
    "check_router",
    "digest_of",
    "escape",
    "has_network",
    "load_router",
    "manifest_to_bytes",
    "parse_document",
    "read_manifest",
    "render_model_card",
    "save_router",
]


_MARKUP = re.compile(r"[\\`*_{}\[\]<>|~&#$!@]|:(?=//)|(?<=www)\.", re.IGNORECASE)

_HOW = {
    "encoder": "Encoder",
    "loss": "Loss",
    "reward": "Reward",
    "margins": "Margins",
    "alpha": "Penalty",
    "decision": "Decision",
    "features": "Features",
    "selection": "Why this one",
}
_LIMITS = (
    "It chooses between the experts above for inputs like those it was trained on. On other inputs,"
    " with other experts, or after prices have moved, measure it again before you rely on it. Its"
    " digests find damage; they do not prove who made it."
)


def render_model_card(manifest: Mapping[str, Any]) -> str:
    """The model card of a manifest."""
    sections = [
        _opening(manifest),
        _section("Experts", _experts(manifest)),
        _section("Training data", _training(manifest)),
        _section("How it decides", _how(manifest)),
        _section("Prices", _prices(manifest.get("prices"))),
        _section("Validation", _metrics(manifest.get("metrics"))),
        _section("Versions", _rows(manifest.get("versions") or {})),
        _section("Use", _use(manifest)),
        _section("Licence and limits", f"{_licence(manifest)} {_LIMITS}"),
        _section(
            "Notes", escape(manifest["notes"], longest=10_000) if manifest.get("notes") else ""
        ),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def escape(value: object, *, longest: int = 300) -> str:
    r"""Text on one line that Markdown shows as it is, in a table too."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    visible = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    if len(visible) > longest:
        visible = visible[:longest] + "…"
    return _MARKUP.sub(r"\\\g<0>", visible) or "(empty)"


def _opening(manifest: Mapping[str, Any]) -> str:
    name, experts = escape(manifest["router"].get("class", "Router")), len(manifest["experts"])
    kind = "as its encoder reads it" if "encoder" in manifest else "a vector"
    return (
        f"# {name} between {pluralize(experts, 'expert')}\n\nA mildroute router: for each input,"
        f" {kind}, it chooses the expert that should answer."
    )


def _experts(manifest: Mapping[str, Any]) -> str:
    experts, margins = manifest["experts"], manifest.get("margins")
    if not isinstance(margins, list) or len(margins) != len(experts):
        return _table(
            ["Index", "Expert"], [[str(place), escape(name)] for place, name in enumerate(experts)]
        )
    rows = [
        [str(place), escape(name), _number(margin)]
        for place, (name, margin) in enumerate(zip(experts, margins, strict=True))
    ]
    return _table(["Index", "Expert", "Margin"], rows)


def _training(manifest: Mapping[str, Any]) -> str:
    rows, width = manifest.get("rows"), manifest.get("n_features_in")
    facts = {
        "Rows": rows if rows is not None else "not recorded",
        "Data hash": manifest.get("data_hash") or "not recorded",
    }
    return _rows(facts if "encoder" in manifest else facts | {"Numbers per input": width})


def _how(manifest: Mapping[str, Any]) -> str:
    facts = {title: manifest[name] for name, title in _HOW.items() if name in manifest}
    if isinstance(facts.get("Margins"), list):
        facts["Margins"] = "one per expert, see above"
    return _rows(facts)


def _prices(prices: Mapping[str, Any] | None) -> str:
    if not prices:
        return "Not recorded: this router was stored without prices."
    experts = prices.get("experts")
    listed = (
        [[escape(name), _price(value)] for name, value in experts.items()]
        if isinstance(experts, dict)
        else []
    )
    about = {
        name.capitalize(): value
        for name, value in prices.items()
        if name != "experts" or not listed
    }
    return "\n\n".join(
        part
        for part in (_rows(about), _table(["Expert", "Price"], listed) if listed else "")
        if part
    )


def _price(value: Any) -> str:
    return (
        ", ".join(f"{escape(name)} {_number(part)}" for name, part in value.items())
        if isinstance(value, dict)
        else _number(value)
    )


def _metrics(metrics: Mapping[str, Any] | None) -> str:
    if not metrics:
        return "Not recorded: this router was stored without validation metrics."
    rows = [[escape(name), *_value_and_interval(value)] for name, value in metrics.items()]
    return _table(["Metric", "Value", "Interval"], rows)


def _value_and_interval(metric: Any) -> tuple[str, str]:
    if not isinstance(metric, dict) or "value" not in metric:
        return _number(metric), "not recorded"
    ends = metric.get("interval", [metric.get("low"), metric.get("high")])
    known = isinstance(ends, list) and len(ends) == 2 and None not in ends
    return _number(metric["value"]), (
        f"{_number(ends[0])} to {_number(ends[1])}" if known else "not recorded"
    )


def _use(manifest: Mapping[str, Any]) -> str:
    width = manifest.get("n_features_in")
    shape = f"(n, {width})" if isinstance(width, int) else "(n, d)"
    inputs = "X is a list of n inputs" if "encoder" in manifest else f"X has shape {shape}"
    return f"""```python
from mildroute.persistence.artifact import load_router

router = load_router("path/to/this/folder")
choice = router.predict(X)  # {inputs}; choice holds indices of experts
names = router.experts_[choice]
```"""


def _licence(manifest: Mapping[str, Any]) -> str:
    if manifest.get("licence"):
        return f"Licence: {escape(manifest['licence'])}."
    return (
        "No licence was recorded: ask who made it, and heed the licence of the training data;"
        " mildroute itself is Apache-2.0."
    )


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else escape(value)


def _section(title: str, body: str) -> str:
    return f"## {title}\n\n{body}" if body else ""


def _rows(facts: Mapping[str, Any]) -> str:
    return (
        _table(["What", "Value"], [[escape(name), _number(value)] for name, value in facts.items()])
        if facts
        else ""
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# The folder of a stored router.


_DEEPEST = 128
_LONGEST_INTEGER = 20


def parse_document(data: bytes) -> dict[str, Any]:
    """A JSON object from bytes that may hold anything."""
    try:
        text = data.decode("utf-8")
        _check_depth(text)
        document = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_finite,
            parse_constant=_refuse_constant,
        )
    except ValueError as broken:
        raise ArtifactError(
            f"router.json must be JSON in UTF-8, got: {broken}; copy the artifact again."
        ) from broken
    if not isinstance(document, dict):
        raise ArtifactError(
            f"router.json must have an object at its top, got a {type(document).__name__}; copy the"
            " artifact again."
        )
    return document


def digest_of(document: dict[str, Any]) -> str:
    """SHA-256 of a document's content, whatever its white space.

    Its own entry ``"sha256"`` does not count.
    """
    content = {key: value for key, value in document.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _check_depth(text: str) -> None:
    # Every second piece between unescaped quotes lies outside strings.
    outside = "".join(text.replace("\\\\", "").replace('\\"', "").split('"')[::2])
    codes = np.frombuffer(outside.encode(), dtype=np.uint8)
    steps = np.isin(codes, list(b"[{")).astype(np.int8) - np.isin(codes, list(b"]}")).astype(
        np.int8
    )
    depth = int(np.cumsum(steps, dtype=np.int64).max(initial=0))
    if depth > _DEEPEST:
        raise ArtifactError(
            f"router.json may be nested {_DEEPEST} levels deep, got {depth}; the artifact is"
            " damaged."
        )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ArtifactError(
                f"router.json may have each key once, got {key!r:.80} twice; copy the artifact"
                " again."
            )
        found[key] = value
    return found


def _integer(text: str) -> int:
    # Longer ones would take quadratic time to convert.
    if len(text) > _LONGEST_INTEGER or not -(2**63) <= int(text) < 2**64:
        raise ArtifactError(
            f"integers in router.json must fit in 64 bits, got {text:.40}; the artifact is damaged."
        )
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ArtifactError(
            f"numbers in router.json must be finite, got {text:.40}; the artifact is damaged."
        )
    return value


def _refuse_constant(text: str) -> NoReturn:
    raise ArtifactError(
        f"numbers in router.json must be finite, got {text}; the artifact is damaged."
    )


# The content of ``router.json``: what the router is, for people and for the loader.


# Version of the layout of ``router.json`` that is written and read.
SCHEMA = 3
KIND = "mildroute-router"

_SUMMARY = ("loss", "reward", "margins", "alpha", "decision", "features", "selection")
_CARD_FIELDS: Mapping[str, type[Any]] = {
    "licence": str,
    "metrics": Mapping,
    "notes": str,
    "prices": Mapping,
    "rows": int,
}


def build_manifest(
    router: Any, tree: dict[str, Any], weights: Mapping[str, Any], card: Mapping[str, object] | None
) -> dict[str, Any]:
    """Everything that ``router.json`` says.

    Args:
        router: A fitted router.
        tree: Its encoded state.
        weights: Digest and description of the weights file.
        card: What only the caller knows; see :func:`mildroute.persistence.artifact.save_router`.
    """
    manifest = {
        "schema": SCHEMA,
        "kind": KIND,
        "experts": [str(name) for name in router.experts_],
        "n_features_in": to_jsonable(getattr(router, "n_features_in_", None), "n_features_in_"),
        **_encoder(router),
        **_summary(getattr(router, "router_", router)),
        "data_hash": to_jsonable(getattr(router, "data_hash_", None), "data_hash_"),
        "rows": to_jsonable(getattr(router, "n_rows_", None), "n_rows_"),
        "prices": None,
        "metrics": to_jsonable(
            getattr(getattr(router, "router_", router), "validation_", None), "validation_"
        ),
        **_checked_card(card or {}),
        "versions": _versions(),
        "weights": dict(weights),
        "router": tree,
    }
    return manifest | {"sha256": digest_of(manifest)}


def manifest_to_bytes(manifest: Mapping[str, Any], *, limit: int) -> bytes:
    r"""The manifest as indented JSON of at most ``limit`` bytes."""
    data = (json.dumps(manifest, indent=2, allow_nan=False) + "\n").encode()
    if len(data) > limit:
        raise ArtifactError(
            f"router.json may have {limit} bytes, got {len(data)}; keep long lists of numbers as"
            " arrays."
        )
    return data


def check_manifest(manifest: Mapping[str, Any]) -> None:
    """Refuse what is not a router of a known schema, or was changed since it was stored."""
    kind, schema = manifest.get("kind"), manifest.get("schema")
    if kind != KIND:
        raise ArtifactError(
            f"router.json must be of kind {KIND!r}, got {kind!r:.80}; this folder is no stored"
            " router."
        )
    if type(schema) is int and 0 < schema < SCHEMA:
        raise ArtifactError(
            f"router.json must have schema {SCHEMA}, got {schema}, of an earlier version of"
            " mildroute; fit the router again."
        )
    if type(schema) is not int or schema != SCHEMA:
        raise ArtifactError(
            f"router.json must have schema {SCHEMA}, got {schema!r:.80}; upgrade mildroute to read"
            " it, or store the router again."
        )
    if manifest.get("sha256") != digest_of(dict(manifest)):
        raise ArtifactError(
            "router.json must have the content it was stored with, but its sha256 differs; copy the"
            " artifact again."
        )
    weights = manifest.get("weights")
    if (
        not isinstance(weights, dict)
        or not isinstance(weights.get("tensors"), dict)
        or not isinstance(weights.get("sha256"), str)
    ):
        raise ArtifactError(
            f"router.json must describe its weights, got {weights!r:.80}; store the router again."
        )
    if not isinstance(manifest.get("router"), dict):
        raise ArtifactError("router.json must have a router, got none; store the router again.")


def check_router(router: Any, manifest: Mapping[str, Any]) -> None:
    """Refuse a rebuilt object that is no router or not the one that the manifest speaks of."""
    experts = getattr(router, "experts_", None)
    if (
        not hasattr(router, "predict")
        or not isinstance(experts, np.ndarray)
        or experts.ndim != 1
        or experts.dtype.kind not in "OU"
    ):
        raise ArtifactError(
            f"an artifact must hold a fitted router, got {type(router).__name__}; store a router."
        )
    width = to_jsonable(getattr(router, "n_features_in_", None), "n_features_in_")
    if width is not None and type(width) is not int:
        raise ArtifactError(
            f"n_features_in_ must be an integer, got {width!r:.80}; store the router again."
        )
    if [experts.tolist(), width] != [manifest.get("experts"), manifest.get("n_features_in")]:
        raise ArtifactError(
            "experts and n_features_in of router.json must be those of its router, but they differ;"
            " store the router again."
        )


def _encoder(router: Any) -> dict[str, Any]:
    """The encoder of a router over inputs, by name.

    Its numbers are among the weights, under their digest.
    """
    encoder = getattr(router, "encoder_", None)
    return {} if encoder is None else {"encoder": to_jsonable(encoder, "encoder_")}


def _summary(router: Any) -> dict[str, Any]:
    """What the router settled on or, where it has nothing fitted by that name, was told."""
    found = {name: getattr(router, f"{name}_", getattr(router, name, None)) for name in _SUMMARY}
    return {
        name: to_jsonable(value, name)
        for name, value in found.items()
        if value is not None and not callable(value)
    }


def _checked_card(card: Mapping[str, object]) -> dict[str, Any]:
    for name, value in card.items():
        kind = _CARD_FIELDS.get(name)
        if kind is None or not isinstance(value, kind) or isinstance(value, bool):
            rule = ", ".join(
                f"{known} ({wanted.__name__})" for known, wanted in _CARD_FIELDS.items()
            )
            raise ArtifactError(
                f"a card may have {rule}, got {name!r:.80} of type {type(value).__name__}; convert"
                " or drop it."
            )
    return {name: to_jsonable(value, f"card.{name}") for name, value in card.items()}


def _versions() -> dict[str, str]:
    installed = {name: importlib.metadata.version(name) for name in ("numpy", "scikit-learn")}
    return {"mildroute": mildroute.__version__, **installed, "python": platform.python_version()}


# A fitted router as a folder: ``router.json``, ``weights.safetensors`` and ``CARD.md``. Reading
# one can never run code.


MANIFEST = "router.json"
WEIGHTS = "weights.safetensors"
CARD = "CARD.md"
# Not written here; see mildroute.persistence.remote.
SIGNATURE = "router.json.sig"
_LARGEST_MANIFEST = 64 << 20
# Fitted attribute in which every encoder and router keeps an exported model.
_NETWORK = "onnx_"


class Router(Protocol):
    """What can be stored and comes back.

    A fitted scikit-learn estimator that chooses between experts.
    """

    experts_: NDArray[Any]

    def predict(self, X: Any) -> NDArray[Any]:
        """Index of the expert that should answer each row, shape (n,)."""
        ...

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Posterior over experts, shape (n, p)."""
        ...

    def rank(self, X: Any) -> NDArray[Any]:
        """Experts of each row from best to worst, shape (n, p)."""
        ...

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters of the constructor by name."""
        ...


def save_router(
    router: Router, folder: str | os.PathLike[str], *, card: Mapping[str, object] | None = None
) -> Path:
    """Store a fitted router in a folder, which appears as a whole or not at all.

    Constructor parameters and fitted attributes are stored; private attributes must be listed in
    the class's tuple ``_transient``, which says that prediction does not need them. A folder that
    exists must be empty or hold a stored router and nothing else.

    Args:
        router: A fitted router of :mod:`mildroute.routers`, or of a class registered under the
            entry-point group ``mildroute.routers``.
        folder: Where to; replaced if it holds a stored router.
        card: What only you know, all of it optional: ``rows`` of the training table; ``prices``,
            with ``date``, ``source``, ``unit`` and ``experts``, a price or a dict of prices for
            each; ``metrics``, for each a number or ``value``, ``low`` and ``high``; ``licence``;
            ``notes``.

    Returns:
        The folder.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from mildroute.routers.regression import RegressionRouter
        >>> X, costs = np.array([[0.0], [1.0]] * 20), np.array([[0.0, 1.0], [1.0, 0.0]] * 20)
        >>> router = RegressionRouter().fit(X, costs)
        >>> folder = save_router(router, Path(tempfile.mkdtemp()) / "router", card={"rows": 40})
        >>> sorted(path.name for path in folder.iterdir())
        ['CARD.md', 'router.json', 'weights.safetensors']
    """
    if hasattr(router, "named_steps"):
        raise ArtifactError(
            "a router or a TextRouter can be stored, got a scikit-learn Pipeline, whose steps can"
            " only be pickled; store its last step and transform inputs before it, or use"
            " TextRouter(encoder, router)."
        )
    if getattr(router, "experts_", None) is None:
        raise ArtifactError(
            f"only a fitted router can be stored, got a {type(router).__name__} without experts_;"
            " call fit first."
        )
    target = _as_path(folder)
    tensors: dict[str, NDArray[Any]] = {}
    check_replaceable(target)
    tree = encode(router, ("router",), tensors)
    weights = tensors_to_bytes(tensors)
    entry = {"sha256": hashlib.sha256(weights).hexdigest(), "tensors": describe(tensors)}
    manifest = build_manifest(router, tree, entry, card)
    check_router(router, manifest)
    text = render_model_card(manifest).encode(errors="backslashreplace")
    write_folder(
        target,
        {
            MANIFEST: manifest_to_bytes(manifest, limit=_LARGEST_MANIFEST),
            WEIGHTS: weights,
            CARD: text,
        },
    )
    return target


def load_router(
    folder: str | os.PathLike[str],
    *,
    weights_limit: int = 4 << 30,
    digest: str | None = None,
    networks: bool = True,
) -> Router:
    """Rebuild a stored router, which then predicts bit for bit as before.

    Nothing from the folder is executed, and no module that it names is imported: it may name only
    classes of
    :mod:`mildroute.routers` and those that installed distributions registered. Digests guard
    against accidents; who wrote the numbers is for a signature to say, which a gateway can require.

    Args:
        folder: What :func:`save_router` wrote.
        weights_limit: Largest weights file that is read, in bytes.
        digest: The ``sha256`` that its manifest must have, or none for any.
        networks: Whether its ONNX models are kept. Without them it decides on vectors that another
            process has encoded, and cannot encode itself.

    Returns:
        The router.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from mildroute.routers.regression import RegressionRouter
        >>> X, costs = np.array([[0.0], [1.0]] * 20), np.array([[0.0, 1.0], [1.0, 0.0]] * 20)
        >>> router = RegressionRouter().fit(X, costs)
        >>> folder = save_router(router, Path(tempfile.mkdtemp()) / "router")
        >>> load_router(folder).predict([[0.0], [1.0]])
        array([0, 1])
    """
    home = _as_path(folder)
    manifest = read_manifest(home)
    if digest not in (None, manifest["sha256"]):
        raise ArtifactError(
            f"{home} must hold the router {digest:.16}..., got {manifest['sha256']:.16}...; it was"
            " replaced meanwhile, so try again."
        )
    weights = read_file(home, WEIGHTS, limit=weights_limit)
    if hashlib.sha256(weights).hexdigest() != manifest["weights"]["sha256"]:
        raise ArtifactError(
            f"{WEIGHTS} in {home} must be the file that was stored, but its sha256 differs; copy"
            " the artifact again."
        )
    tensors = tensors_from_bytes(weights, manifest["weights"]["tensors"])
    tree = manifest["router"]
    if not networks:
        tree = _without_networks(tree)
        tensors = {name: tensor for name, tensor in tensors.items() if not _is_network(name)}
    router: Router = decode(tree, tensors)
    if tensors:
        raise ArtifactError(
            f"every tensor must belong to the router, got {sorted(tensors)!r:.200} as well; store"
            " the router again."
        )
    check_router(router, manifest)
    return router


def has_network(manifest: Mapping[str, Any]) -> bool:
    """Whether a stored router carries an ONNX model, such as that of a sentence encoder."""
    return any(map(_is_network, manifest["weights"]["tensors"]))


def _is_network(tensor: str) -> bool:
    return tensor.endswith(f".{_NETWORK}")


def _without_networks(node: Any) -> Any:
    """A tree without the attributes that hold ONNX models."""
    if isinstance(node, list):
        return [_without_networks(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {key: _without_networks(item) for key, item in node.items() if key != _NETWORK}


def read_manifest(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """What ``router.json`` says about a stored router, checked against its digest.

    The weights are not read.

    Example:
        >>> read_manifest("no such folder")
        Traceback (most recent call last):
        mildroute.exceptions.ArtifactError: no such folder must be a folder with ...
    """
    manifest = parse_document(read_file(_as_path(folder), MANIFEST, limit=_LARGEST_MANIFEST))
    check_manifest(manifest)
    return manifest


def check_replaceable(folder: str | os.PathLike[str]) -> None:
    """Refuse to write over anything but an empty folder or a stored router.

    The router may be of any schema, but other files must not lie beside it.
    """
    target = Path(folder)
    names = names_in(target)
    if names and (names - {MANIFEST, WEIGHTS, CARD, SIGNATURE} or not _is_stored_router(target)):
        raise ArtifactError(
            f"{target} must be new, empty or a stored router without other files, got"
            f" {sorted(names)!r:.200}; choose another folder."
        )


def _as_path(folder: Any) -> Path:
    if isinstance(folder, str | os.PathLike):
        return Path(folder)
    raise ArgumentError(
        f"folder must be a path, got {folder!r:.80} of type {type(folder).__name__}; give the"
        " folder that save_router wrote."
    )


def _is_stored_router(folder: Path) -> bool:
    try:
        manifest = parse_document(read_file(folder, MANIFEST, limit=_LARGEST_MANIFEST))
    except ArtifactError:
        return False
    return manifest.get("kind") == KIND
