"""Imports point down only, and each heavy dependency has its layer."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "mildroute"
LAYERS = [
    "exceptions",
    "_lazy",
    "_optional",
    "_transformers",
    "_plugins",
    "_files",
    "_fingerprint",
    "_jsonl",
    "_hashing",
    "_content_hash",
    "_checks",
    "_short_form",
    "_yaml",
    "configuration",
    "_format",
    "text",
]
LAYERS += [
    "losses",
    "costs",
    "routers",
    "experts",
    "judges",
    "encoders",
    "persistence",
    "fitting",
    "datasets",
]
LAYERS += [
    "collection",
    "deep",
    "evaluation",
    "decision",
    "gateway",
    "learning",
    "ray",
    "_api",
    "integrations",
    "cli",
    "__main__",
]
# Inside the gateway, from the ground up. Files of one package import each other without cycles.
GATEWAY_LAYERS = [
    "config",
    "key_file",
    "keys",
    "key_changes",
    "limits",
    "http",
    "authentication",
    "observability",
    "upstream",
    "response_ids",
    "response_edits",
    "routing",
    "context",
    "recorder",
    "sampling",
    "cascade",
    "forwarding",
    "proxy",
]
GATEWAY_LAYERS += ["parent", "reload", "api", "openapi", "app", "factory", "server", "__init__"]
HOMES = {
    "aiohttp": {"gateway"},
    "redis": {"gateway"},
    "httpx": {"encoders", "experts", "integrations", "gateway"},
    "litellm": {"integrations"},
    "matplotlib": {"evaluation"},
    "onnxruntime": {"encoders"},
    "orjson": {"experts", "integrations", "gateway"},
    "opentelemetry": {"gateway"},
    "prometheus_client": {"gateway"},
    "grpc": {"integrations"},
    "ray": {"ray"},
    "rich": {"cli"},
    "starlette": {"gateway", "integrations"},
    "torch": {"_optional", "losses", "routers", "encoders", "deep", "ray"},
    "transformers": {"encoders", "deep"},
    "typer": {"cli"},
    "uvicorn": {"gateway", "integrations"},
    "pydantic": {"configuration", "decision", "experts", "gateway", "integrations"},
    "pydantic_core": {"_short_form", "configuration", "decision", "integrations"},
    "yaml": {"_yaml"},
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
        if (
            top == "mildroute"
            and inner[:1]
            and inner[0] in LAYERS
            and LAYERS.index(inner[0]) > LAYERS.index(layer)
        ):
            found.append(f"{layer} imports {inner[0]}, which lies above it")
        if layer not in HOMES.get(top, {layer}):
            found.append(f"{layer} imports {top}, which belongs to {sorted(HOMES[top])}")
    return found


@pytest.mark.parametrize(
    "path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE))
)
def test_imports_point_down_and_heavy_ones_stay_in_their_layer(path: Path) -> None:
    layer = layer_of(path)
    assert layer in {*LAYERS, "__init__"}, f"{layer} is not a layer; add it to LAYERS at its height"
    assert violations("__main__" if layer == "__init__" else layer, path.read_text()) == []


def gateway_violations(layer: str, code: str) -> list[str]:
    inner = [
        name.split(".")[2]
        for name in imports_of(ast.parse(code))
        if name.startswith("mildroute.gateway.")
    ]
    height = GATEWAY_LAYERS.index(layer)
    return [
        f"{layer} imports {name}, which lies above it"
        for name in inner
        if name in GATEWAY_LAYERS and GATEWAY_LAYERS.index(name) > height
    ]


@pytest.mark.parametrize(
    "path",
    sorted((SOURCE / "gateway").rglob("*.py")),
    ids=lambda path: str(path.relative_to(SOURCE)),
)
def test_imports_point_down_inside_the_gateway(path: Path) -> None:
    layer = path.relative_to(SOURCE / "gateway").parts[0].removesuffix(".py")
    assert layer in GATEWAY_LAYERS, f"{layer} is no layer; add it to GATEWAY_LAYERS at its height"
    assert gateway_violations(layer, path.read_text()) == []


def test_the_gateway_has_no_cycle_of_imports() -> None:
    graph = {}
    for path in (SOURCE / "gateway").rglob("*.py"):
        name = "mildroute." + ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        found = imports_of(ast.parse(path.read_text()))
        graph[name] = {each.rpartition(".")[0] for each in found} - {name}
    assert "mildroute.gateway.limits.base" in graph["mildroute.gateway.authentication"]
    modules = {name: graph[name] & graph.keys() for name in graph if not name.endswith("__init__")}
    list(TopologicalSorter(modules).static_order())  # a CycleError names the cycle


def test_the_check_of_the_gateway_notices_a_wrong_import() -> None:
    code = "from mildroute.gateway.context import RequestContext"
    assert gateway_violations("observability", code) != []
    assert gateway_violations("api", code) == []


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
