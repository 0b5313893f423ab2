"""The plug-ins under examples/plugins, installed into a folder as pip would do it, without the
network and without a build.
"""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path
from typing import Any

PLUGINS = sorted(
    path.parent
    for path in (Path(__file__).parents[1] / "examples" / "plugins").glob("*/pyproject.toml")
)


def project_of(plugin: Path) -> dict[str, Any]:
    """The [project] table of a plug-in's own pyproject.toml."""
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    project: dict[str, Any] = toml.loads((plugin / "pyproject.toml").read_text())["project"]
    return project


def module_of(plugin: Path) -> Path:
    return plugin / f"mildroute_plugin_{plugin.name}.py"


def install(plugin: Path, site: Path) -> None:
    """The module, and the metadata by which importlib finds the entry points."""
    project = project_of(plugin)
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    shutil.copy(module_of(plugin), site)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(groups))
