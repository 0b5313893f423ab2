"""Imports point down only, and each heavy dependency has its room."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "mildroute"
ROOMS = ["errors", "lazy", "core", "routers", "encoders", "costs", "experts", "judges", "collecting", "embedding"]
ROOMS += ["evaluation", "deep", "engine", "serving", "integrations", "cli", "__main__"]
HOMES = {
    "httptools": {"serving"},
    "httpx": {"experts", "serving"},
    "litellm": {"integrations"},
    "matplotlib": {"evaluation"},
    "mlflow": {"integrations"},
    "onnxruntime": {"encoders"},
    "opentelemetry": {"serving"},
    "prometheus_client": {"serving"},
    "ray": {"engine"},
    "rich": {"cli"},
    "starlette": {"serving"},
    "torch": {"core", "routers", "encoders", "deep", "engine"},
    "transformers": {"encoders", "deep"},
    "typer": {"cli"},
    "uvicorn": {"serving"},
    "yaml": {"experts"},
}


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def violations(room: str, code: str) -> list[str]:
    found = []
    for name in imports_of(ast.parse(code)):
        top, *inner = name.split(".")
        if top == "mildroute" and inner[:1] and inner[0] in ROOMS and ROOMS.index(inner[0]) > ROOMS.index(room):
            found.append(f"{room} imports {inner[0]}, which lies above it")
        if room not in HOMES.get(top, {room}):
            found.append(f"{room} imports {top}, which belongs to {sorted(HOMES[top])}")
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down_and_heavy_ones_stay_in_their_room(path: Path) -> None:
    room = room_of(path)
    assert room in {*ROOMS, "__init__"}, f"{room} is not a room of the house; add it to ROOMS at its height"
    assert violations("errors" if room == "__init__" else room, path.read_text()) == []


@pytest.mark.parametrize(
    ("room", "code"),
    [
        ("core", "from mildroute.cli.app import app"),
        ("core", "import mildroute.routers"),
        ("core", "import matplotlib.pyplot"),
        ("cli", "import torch"),
        ("costs", "def late():\n    from ray import data"),
    ],
)
def test_the_check_itself_notices_a_wrong_import(room: str, code: str) -> None:
    assert violations(room, code) != []
