"""Imports point down only, and each heavy dependency has its layer."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "mildroute"
LAYERS = ["exceptions", "_optional", "_files", "_fingerprint", "_jsonl", "_hashing", "_yaml", "_format"]
LAYERS += ["losses", "costs", "routers", "experts", "encoders", "pipeline", "persistence", "judges", "_fit", "datasets"]
LAYERS += ["collection", "embedding", "deep", "evaluation", "distributed", "serving", "integrations", "cli", "__main__"]
HOMES = {
    "httptools": {"serving"},
    "httpx": {"experts", "serving"},
    "litellm": {"integrations"},
    "matplotlib": {"evaluation"},
    "mlflow": {"integrations"},
    "onnxruntime": {"encoders"},
    "opentelemetry": {"serving"},
    "prometheus_client": {"serving"},
    "ray": {"distributed"},
    "rich": {"cli"},
    "starlette": {"serving"},
    "torch": {"_optional", "losses", "routers", "encoders", "deep", "distributed"},
    "transformers": {"encoders", "deep"},
    "typer": {"cli"},
    "uvicorn": {"serving"},
    "yaml": {"_yaml", "experts"},
}


def layer_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def violations(layer: str, code: str) -> list[str]:
    found = []
    for name in imports_of(ast.parse(code)):
        top, *inner = name.split(".")
        if top == "mildroute" and inner[:1] and inner[0] in LAYERS and LAYERS.index(inner[0]) > LAYERS.index(layer):
            found.append(f"{layer} imports {inner[0]}, which lies above it")
        if layer not in HOMES.get(top, {layer}):
            found.append(f"{layer} imports {top}, which belongs to {sorted(HOMES[top])}")
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down_and_heavy_ones_stay_in_their_layer(path: Path) -> None:
    layer = layer_of(path)
    assert layer in {*LAYERS, "__init__"}, f"{layer} is not a layer a layer; add it to LAYERS at its height"
    assert violations("__main__" if layer == "__init__" else layer, path.read_text()) == []


@pytest.mark.parametrize(
    ("layer", "code"),
    [
        ("losses", "from mildroute.cli.app import app"),
        ("losses", "import mildroute.routers"),
        ("losses", "import matplotlib.pyplot"),
        ("cli", "import torch"),
        ("costs", "def late():\n    from ray import data"),
    ],
)
def test_the_check_itself_notices_a_wrong_import(layer: str, code: str) -> None:
    assert violations(layer, code) != []


def test_files_are_few_and_no_package_is_a_heap() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    assert len(files) <= 210
    crowded = {str(folder): count for folder in {path.parent for path in files} if (count := len(list(folder.glob("*.py")))) > 20}
    assert crowded == {}
