"""One page for each package: what it exports, from its docstrings.

And references that find a name under whichever module defines it.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.util import logging

import mildroute

__all__ = ["setup"]

_LOGGER = logging.getLogger(__name__)
_NOT_FOR_USERS = {"mildroute.cli"}
_TOP = "mildroute"


def packages() -> list[str]:
    """Packages with names for users, and the module of errors."""
    found = [f"mildroute.{module.name}" for module in pkgutil.iter_modules(mildroute.__path__)]
    return [
        _TOP,
        *sorted(
            name
            for name in found
            if name not in _NOT_FOR_USERS and not name.startswith("mildroute._")
        ),
    ]


def page_of(name: str) -> str:
    """The page of a package: a line on each name, then each in full."""
    module = importlib.import_module(name)
    exported = sorted(name for name in getattr(module, "__all__", ()) if not name.startswith("__"))
    names = "\n".join(f"   ~{name}.{public}" for public in exported)
    table = f".. autosummary::\n   :nosignatures:\n\n{names}\n" if exported else ""
    members = ""
    if name == _TOP:
        # What a package below exports, too, is described there.
        members = " " + ", ".join(
            public
            for public in exported
            if getattr(module, public).__module__.startswith("mildroute._")
        )
        table = ""
    return (
        f"{name}\n{'=' * len(name)}\n\n{table}\n.. automodule:: {name}\n   :members:{members}\n  "
        " :imported-members:\n"
    )


def write_pages(app: Any) -> None:
    """Pages of all packages and their table of contents."""
    folder = Path(app.srcdir) / "api"
    folder.mkdir(exist_ok=True)
    lines = []
    for name in packages():
        short = name.removeprefix("mildroute.")
        _write(folder / f"{short}.rst", page_of(name))
        lines.append(f"   {short}")
    head = (
        "API reference\n=============\n\nEvery public name, by package. Each has an example that is"
        " run with the tests.\n\n"
    )
    _write(
        folder / "index.rst", f"{head}.. toctree::\n   :maxdepth: 1\n\n" + "\n".join(lines) + "\n"
    )


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def find_elsewhere(
    app: Any, env: Any, node: addnodes.pending_xref, inner: nodes.Element
) -> nodes.Element | None:
    """A name that a package exports, asked for under the module that defines it or by itself."""
    target = str(node.get("reftarget", ""))
    if node.get("refdomain") != "py":
        return None
    domain = env.get_domain("py")
    short = target.rsplit(".", 1)[-1]
    known = [name for name in domain.objects if name.endswith(f".{short}")]
    matches = [name for name in known if name.count(".") == 2] or [
        name for name in known if name.count(".") == 1
    ]
    if target.startswith("mildroute.") and len(matches) == 1:
        place = domain.objects[matches[0]]
        uri = app.builder.get_relative_uri(node["refdoc"], place.docname) + f"#{place.node_id}"
        return nodes.reference("", "", inner, internal=True, refuri=uri)
    if str(env.doc2path(node["refdoc"])).endswith(".md"):
        _LOGGER.warning("no public name %s", target, location=node)
    return inner


def leave_out(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:  # noqa: ARG001
    """Leave out methods that scikit-learn adds to every estimator.

    They are described in its own words and with references to its own pages.
    """
    return True if name.endswith("_request") or name == "get_metadata_routing" else None


def setup(app: Any) -> dict[str, Any]:
    """Write the pages before anything is read."""
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-skip-member", leave_out)
    app.connect("missing-reference", find_elsewhere)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
