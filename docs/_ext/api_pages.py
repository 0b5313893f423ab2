"""One page for each package and each class that it exports, from their docstrings.

And references that find a name under whichever module defines it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
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
# Modules whose names no package below the top exports.
_HOMELESS = ("mildroute._", "mildroute.fitting.")
# What most readers of a page look for; the other names follow in alphabetical order.
_FIRST = {"mildroute.losses": ("MILDLoss", "TDEFLoss", "CrossEntropyLoss", "LDAMLoss")}


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


def described_in(package: str) -> list[str]:
    """Names that the pages of a package describe.

    What the top exports and a package below it, too, is described there.
    """
    module = importlib.import_module(package)
    return in_order(
        package,
        (
            name
            for name in getattr(module, "__all__", ())
            if not name.startswith("__")
            and (package != _TOP or getattr(module, name).__module__.startswith(_HOMELESS))
        ),
    )


def in_order(package: str, names: Iterable[str]) -> list[str]:
    """Sort the names of a package as its page lists them."""
    known, first = set(names), _FIRST.get(package, ())
    return [*(name for name in first if name in known), *sorted(known.difference(first))]


def pages_of(package: str) -> dict[str, str]:
    """Pages by path: the package with its functions, and one of each class."""
    module = importlib.import_module(package)
    short = package.removeprefix("mildroute.")
    names = described_in(package)
    classes = [name for name in names if isinstance(getattr(module, name), type)]
    others = ", ".join(name for name in names if name not in classes)
    # The docstring of a constant is that of its type.
    table = "".join(
        f"   ~{package}.{name}\n"
        for name in in_order(package, getattr(module, "__all__", ()))
        if callable(getattr(module, name))
    )
    entries = "".join(f"   {short}.{name}\n" for name in classes)
    members = f"   :members: {others}\n   :imported-members:\n" if others else ""
    page = (
        f"{_title(package)}.. autosummary::\n   :nosignatures:\n\n{table}\n"
        f".. automodule:: {package}\n{members}\n.. toctree::\n   :hidden:\n\n{entries}"
    )
    return {short: page} | {
        f"{short}.{name}": f"{_title(name)}.. autoclass:: {package}.{name}\n   :members:\n"
        for name in classes
    }


def _title(text: str) -> str:
    return f"{text}\n{'=' * len(text)}\n\n"


def write_pages(app: Any) -> None:
    """Pages of all packages and classes, and their table of contents."""
    folder = Path(app.srcdir) / "api"
    folder.mkdir(exist_ok=True)
    pages = {path: text for package in packages() for path, text in pages_of(package).items()}
    entries = "".join(f"   {name.removeprefix('mildroute.')}\n" for name in packages())
    pages["index"] = (
        f"{_title('API reference')}Every public name, by package; a class has a page of its own.\n"
        f"Examples are run with the tests.\n\n.. toctree::\n   :maxdepth: 1\n\n{entries}"
    )
    for page in folder.glob("*.rst"):
        if page.stem not in pages:
            page.unlink()
    for path, text in pages.items():
        _write(folder / f"{path}.rst", text)


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
    # An annotation such as ``...`` has no name; Sphinx knows what to write for it.
    return None if isinstance(inner, addnodes.pending_xref_condition) else inner


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
