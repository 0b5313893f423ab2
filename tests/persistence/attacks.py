"""Ways to damage or forge an artifact.

Each takes the folder of a good one and changes it in place.
"""

from __future__ import annotations

import functools
import json
import operator
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mildroute.persistence.weights import tensors_to_bytes
from persistence.stored import (
    document_of,
    forged_document,
    forged_tensors,
    write_document,
    write_weights,
)

Attack = Callable[[Path], object]
FILES = ("router.json", "weights.safetensors")
WEIGHTS = "router.weights_"


def flip(name: str, seed: int) -> Attack:
    def attack(folder: Path) -> None:
        data, chance = bytearray((folder / name).read_bytes()), np.random.default_rng(seed)
        data[chance.integers(len(data))] ^= 1 << int(chance.integers(8))
        (folder / name).write_bytes(data)

    return attack


def truncate(name: str, seed: int) -> Attack:
    def attack(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: np.random.default_rng(seed).integers(len(data))])

    return attack


def resealed_flip(seed: int) -> Attack:
    """A bit of the weights file, with a digest that fits.

    Only a header can be found out, a number is a number.
    """

    def attack(folder: Path) -> None:
        data, chance = (
            bytearray((folder / "weights.safetensors").read_bytes()),
            np.random.default_rng(seed),
        )
        data[chance.integers(8 + int.from_bytes(data[:8], "little"))] ^= 1 << int(
            chance.integers(8)
        )
        write_weights(folder, bytes(data))

    return attack


def replace(name: str, data: bytes) -> Attack:
    return lambda folder: (folder / name).write_bytes(data)


def header(length: int, text: bytes = b"{}") -> Attack:
    return lambda folder: write_weights(
        folder, length.to_bytes(8, "little", signed=length < 0) + text, {}
    )


def put(value: Any, *keys: Any) -> Attack:
    """Set an entry of router.json, with a digest that fits."""

    def attack(folder: Path) -> None:
        with forged_document(folder) as document:
            functools.reduce(operator.getitem, keys[:-1], document)[keys[-1]] = value

    return attack


def drop(*keys: str) -> Attack:
    def attack(folder: Path) -> None:
        with forged_document(folder) as document:
            del functools.reduce(operator.getitem, keys[:-1], document)[keys[-1]]

    return attack


def retensor(change: Callable[[dict[str, Any]], object], *, described: bool) -> Attack:
    def attack(folder: Path) -> None:
        with forged_tensors(folder, described=described) as tensors:
            change(tensors)

    return attack


def rename_tensor(name: str) -> Attack:
    def attack(folder: Path) -> None:
        with forged_tensors(folder, described=True) as tensors:
            tensors[name] = tensors.pop(WEIGHTS)
        put(name, "router", "attributes", "weights_", "tensor")(folder)

    return attack


def link(name: str, target: str) -> Attack:
    def attack(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(target)

    return attack


def outward_link(name: str) -> Attack:
    def attack(folder: Path) -> None:
        (folder / name).rename(folder.parent / name)
        (folder / name).symlink_to(folder.parent / name)

    return attack


def directory(name: str) -> Attack:
    def attack(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return attack


def raw(change: Callable[[str], str]) -> Attack:
    """Change the text of router.json, digest or not."""

    def attack(folder: Path) -> None:
        text = change(json.dumps(document_of(folder)))
        (folder / "router.json").write_bytes(text.encode("utf-8", "surrogatepass"))

    return attack


def raw_bool(folder: Path) -> None:
    with forged_tensors(folder, described=True) as tensors:
        tensors["flags"] = np.zeros(3, dtype=bool)
    data = (folder / "weights.safetensors").read_bytes()
    put({"$": "array", "tensor": "flags"}, "router", "attributes", "flags_")(folder)
    start = int.from_bytes(data[:8], "little") + 8
    offset = json.loads(data[8:start])["flags"]["data_offsets"][0]
    write_weights(folder, data[: start + offset] + b"\x02" + data[start + offset + 1 :])


def empty_and_vast(folder: Path) -> None:
    """A tensor without elements whose shape no array can have."""
    shape = [0, 2**63 - 1, 2**63 - 1]
    text = json.dumps({"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}).encode()
    write_weights(folder, len(text).to_bytes(8, "little") + text, {"a": [shape, "float32"]})


def unknown_dtype(folder: Path) -> None:
    text = json.dumps({"a": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}).encode()
    write_weights(
        folder, len(text).to_bytes(8, "little") + text + b"\0\0", {"a": [[1], "bfloat16"]}
    )


def borrowed_by_two(folder: Path) -> None:
    put({"$": "array", "tensor": WEIGHTS}, "router", "attributes", "again_")(folder)


def topics_at_the_top(folder: Path) -> None:
    document = document_of(folder)
    document["router"] = document["router"]["attributes"]["topics_"]
    names = {
        name: entry
        for name, entry in document["weights"]["tensors"].items()
        if name.startswith("router.topics_.")
    }
    with forged_tensors(folder, described=True) as tensors:
        for name in set(tensors) - set(names):
            del tensors[name]
    document["weights"] = document_of(folder)["weights"]
    write_document(folder, document)


CLASS = ("router", "class")
PARAMS, ATTRIBUTES = ("router", "params"), ("router", "attributes")
BAD_CLASSES = [
    "os.system",
    "builtins.eval",
    "eval",
    "pickle.Unpickler",
    "subprocess.Popen",
    "RouterMixin",
    "BaseEstimator",
    "",
    "../ToyRouter",
]
BAD_CLASSES += [
    "mildroute.routers.features.TopicFeatures",
    "routers.stored.ToyRouter",
    "__class__",
    "toyrouter",
    "ToyRouter\0",
    "__main__:x",
]
BAD_PARAMS = [
    "__class__",
    "__reduce__",
    "__dict__",
    "__init__",
    "predict",
    "fit",
    "_transient",
    "unknown",
    "",
    "scale ",
    "weights_",
    "*",
    "self",
]
BAD_ATTRIBUTES = [
    "__class__",
    "__reduce__",
    "__dict__",
    "__getstate__",
    "predict",
    "fit",
    "width_",
    "_seen",
    "_private_",
    "scale",
    "",
    "_",
    "__",
]
BAD_ATTRIBUTES += [
    "dunder__",
    "weights_\n",
    "a.b_",
    "1_",
    "é_",
    "../weights_",
    "get_params",
    "_fit",
]
NODES: list[Any] = [
    {},
    {"$": "pickle", "value": "gASVAAAA"},
    {"$": 1},
    {"$": None},
    {"$": ["array"]},
    {"$": "array"},
    {"$": "tuple"},
]
NODES += [
    {"$": "tuple", "items": {}},
    {"$": "dict", "items": []},
    {"$": "dict"},
    {"$": "float", "value": "1e5"},
    {"$": "float", "value": 1.0},
]
NODES += [
    {"$": "scalar"},
    {"$": "scalar", "array": 3},
    {"$": "scalar", "array": {"$": "array", "tensor": WEIGHTS}},
    {"$": "estimator"},
]
NODES += [
    {"$": "estimator", "class": ["ToyRouter"], "params": {}, "attributes": {}},
    {"$": "array", "tensor": "router.nowhere_"},
]
NODES += [
    {"$": "estimator", "class": "ToyRouter", "params": [], "attributes": {}},
    {"$": "array", "tensor": {"a": 1}},
]
STRINGS: list[dict[str, Any]] = [
    {"shape": [3], "values": ["a"]},
    {"shape": [-1], "values": ["a"]},
    {"shape": [1], "values": [1]},
    {"shape": "x"},
]
STRINGS += [
    {"shape": [1.0], "values": ["a"]},
    {"shape": [True], "values": ["a"]},
    {"shape": [0, 2**70], "values": []},
    {"values": ["a"]},
]
STRINGS += [
    {"shape": [1], "values": "a"},
    {"shape": [0] * 40, "values": []},
    {"shape": [1], "values": ["a"], "dtype": "O"},
    {"shape": [1]},
]
STRINGS += [
    {"shape": [70_000], "values": ["a" * 1000] + ["b"] * 69_999, "dtype": "str"},
    {"shape": [0, 2**40, 2**40], "values": []},
]
TOPS: list[tuple[str, Any]] = [
    ("schema", bad) for bad in (1, 2, 3, 5, 99, 0, -1, "4", 4.0, True, None, [4])
] + [("kind", bad) for bad in ("pickle", None, 3)]
TOPS += [("router", bad) for bad in (None, [], "ToyRouter", 3, {"$": "tuple", "items": []})] + [
    ("weights", bad) for bad in (None, [], {}, "x")
]
TOPS += [("experts", bad) for bad in (["../../etc/passwd"], None, [], "abc", [1, 2, 3])] + [
    ("n_features_in", bad) for bad in (4, -1, None, "5", 5.5)
]
TEXTS = [
    "",
    "null",
    "[]",
    "3",
    '"x"',
    "{",
    "{}}",
    "NaN",
    "[" * 100_000,
    '{"a":' * 100_000,
    '{"a": "' + "[" * 5 + '"',
    "\ufeff{}",
    "{'a': 1}",
    "{,}",
]
NUMBERS = [
    "NaN",
    "Infinity",
    "-Infinity",
    "1e999",
    "-1e999",
    "1" * 5000,
    "-" + "1" * 30,
    str(2**64),
    "01",
    "0x10",
    ".5",
    "1_000",
    "+1",
    "--1",
]


def in_scale(number: str) -> Attack:
    return raw(lambda text: text.replace('"scale": 0.5', f'"scale": {number}', 1))


# Accidents: refused, or without effect.
DAMAGE: dict[str, Attack] = {
    **{f"flip {name} {seed}": flip(name, seed) for name in FILES for seed in range(60)},
    **{f"truncate {name} {seed}": truncate(name, seed) for name in FILES for seed in range(20)},
    **{f"flip header {seed}": resealed_flip(seed) for seed in range(60)},
}

# What a forger may try, digests fitted where they can be: always refused.
FORGERIES: dict[str, Attack] = {
    **{f"class {name!r}": put(name, *CLASS) for name in BAD_CLASSES},
    **{
        f"nested class {name!r}": put(name, *ATTRIBUTES, "topics_", "class") for name in BAD_CLASSES
    },
    **{f"param {name!r}": put("x", *PARAMS, name) for name in BAD_PARAMS},
    **{
        f"nested param {name!r}": put("x", *ATTRIBUTES, "topics_", "params", name)
        for name in BAD_PARAMS
    },
    **{f"attribute {name!r}": put("x", *ATTRIBUTES, name) for name in BAD_ATTRIBUTES},
    **{
        f"node {place} {node!r:.60}": put(node, *ATTRIBUTES, "weights_")
        for place, node in enumerate(NODES)
    },
    **{
        f"strings {place}": put({"$": "strings", "dtype": "object"} | node, *ATTRIBUTES, "names_")
        for place, node in enumerate(STRINGS)
    },
    **{f"{key} = {value!r:.40}": put(value, key) for key, value in TOPS},
    **{
        f"no {key}": drop(key)
        for key in ("schema", "kind", "router", "weights", "experts", "n_features_in")
    },
    **{
        f"no {key} of the router": drop("router", key)
        for key in ("$", "class", "params", "attributes")
    },
    **{f"text {text!r:.20}": replace("router.json", text.encode()) for text in TEXTS},
    **{f"number {number:.20}": in_scale(number) for number in NUMBERS},
    **{
        f"weights {data!r:.20}": replace("weights.safetensors", data)
        for data in (b"", b"\0" * 7, b"\x80\x04.", b"PK\x03\x04" * 9)
    },
    **{
        f"header of {length}": header(length)
        for length in (3, 2**26 + 1, 2**63 - 1, -1, -(2**63), 10**6)
    },
    **{
        f"header {text!r}": header(len(text), text)
        for text in (b"", b"[]", b"null", b"{" * 2000, b"\xff\xfe", b'{"a": 1}')
    },
    **{
        f"tensor called {name!r}": rename_tensor(name)
        for name in ("../../etc/passwd", "/etc/passwd", "a b", "", "a..b", "é", "a\0b")
    },
    **{f"missing {name}": lambda folder, name=name: (folder / name).unlink() for name in FILES},
    **{f"directory {name}": directory(name) for name in FILES},
    **{f"outward link {name}": outward_link(name) for name in FILES},
    **{
        f"link {name} to {target}": link(name, target)
        for name in FILES
        for target in ("/etc/passwd", "/dev/zero", name, "nowhere")
    },
    "fewer columns": retensor(
        lambda tensors: tensors.update({WEIGHTS: tensors[WEIGHTS][:, :2].copy()}), described=False
    ),
    "another dtype": retensor(
        lambda tensors: tensors.update({WEIGHTS: tensors[WEIGHTS].astype(np.float64)}),
        described=False,
    ),
    "transposed": retensor(
        lambda tensors: tensors.update({WEIGHTS: tensors[WEIGHTS].T.copy()}), described=False
    ),
    "extra tensor": retensor(lambda tensors: tensors.update(extra=np.zeros(2)), described=False),
    "extra described tensor": retensor(
        lambda tensors: tensors.update(extra=np.zeros(2)), described=True
    ),
    "lost tensor": retensor(lambda tensors: tensors.pop(WEIGHTS), described=False),
    "lost described tensor": retensor(lambda tensors: tensors.pop(WEIGHTS), described=True),
    "other weights": replace("weights.safetensors", tensors_to_bytes({"a": np.zeros(2)})),
    "described shape": put([[1, 1], "float32"], "weights", "tensors", WEIGHTS),
    "described nonsense": put("float32", "weights", "tensors", WEIGHTS),
    "digest of weights": put("0" * 64, "weights", "sha256"),
    "duplicate key": raw(lambda text: text.replace('"schema": 4,', '"schema": 4, "schema": 4,', 1)),
    "duplicate nested key": raw(
        lambda text: text.replace('"scale": 0.5', '"scale": 0.5, "scale": 0.5', 1)
    ),
    "not UTF-8": replace("router.json", b'{"kind": "\xff\xfe"}'),
    "lone surrogate": raw(lambda text: text.replace("mildroute-router", "\ud800", 1)),
    "without a digest": raw(lambda text: '"sha512"'.join(text.rsplit('"sha256"', 1))),
    "another parameter": raw(lambda text: text.replace('"scale": 0.5', '"scale": 0.25', 1)),
    "another metric": raw(lambda text: text.replace('"loss": 0.5', '"loss": 0.1', 1)),
    "deep list": lambda folder: put(json.loads("[" * 200 + "]" * 200), *PARAMS, "extra")(folder),
    "truth values of two": raw_bool,
    "empty and vast": empty_and_vast,
    "unknown dtype": unknown_dtype,
    "one tensor for two": borrowed_by_two,
    "no router at the top": topics_at_the_top,
    "huge file": lambda folder: os.truncate(folder / "router.json", (64 << 20) + 1),
}

# Changes that must not matter.
HARMLESS: dict[str, Attack] = {
    **{f"flip CARD.md {seed}": flip("CARD.md", seed) for seed in range(5)},
    "no card": lambda folder: (folder / "CARD.md").unlink(),
    "card is a link": link("CARD.md", "/etc/passwd"),
    "white space": raw(lambda text: "\n\t " + text.replace(", ", " ,\n") + "\n"),
    "another file": lambda folder: (folder / "__init__.py").write_text("raise SystemExit"),
    "inner link": (
        lambda folder: (
            (folder / "router.json").rename(folder / "real.json")
            and (folder / "router.json").symlink_to("real.json")
        )
    ),
    "unknown entry": put({"__reduce__": "x"}, "comment"),
    "odd summary": put("../../etc/passwd", "reward"),
    "odd versions": put({"mildroute": "99"}, "versions"),
}
