"""Every exception that mildroute raises on purpose.

A message states the rule that was broken, the value that broke it and the way out.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "ArgumentError",
    "ArtifactError",
    "CostError",
    "MarginError",
    "MildrouteError",
    "MissingExtraError",
    "ShapeError",
    "TableError",
    "UnreachableTargetError",
]


class MildrouteError(Exception):
    """Root of all errors raised by mildroute; catch it to catch them all."""


class ArgumentError(MildrouteError, ValueError):
    """An argument breaks a rule stated in the function's documentation."""


class ShapeError(ArgumentError):
    """An array does not have the shape that its role demands."""


class CostError(ArgumentError):
    """Costs or rewards hold values that no router can learn from."""


class MarginError(ArgumentError):
    """Margins are not all positive and finite."""


class ArtifactError(MildrouteError):
    """A stored router cannot be read, or a router cannot be stored."""


class TableError(MildrouteError, ValueError):
    """A cost table cannot be read, or its content breaks a rule of the format."""


class MissingExtraError(MildrouteError, ImportError):
    """A part of mildroute needs an optional dependency that is not installed."""

    @classmethod
    def for_package(cls, package: str, *, extra: str, user: str) -> MissingExtraError:
        """Name the package, who needs it and the command that installs it."""
        return cls(f"{user} needs {package}; run: {install_command(extra)}")


class UnreachableTargetError(MildrouteError):
    """No operating point meets the target; the message says how far it can be met."""


def install_command(extra: str) -> str:
    """Return the command that adds an extra, from where this installation came: index, file or URL.

    ``pip install 'mildroute[text]'`` would bring another version to a checkout, or none at all.
    """
    # Not at the top: errors are rare, and it loads twenty modules.
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        record = distribution("mildroute").read_text("direct_url.json")
    except PackageNotFoundError:
        record = None
    option, source = _source(json.loads(record), extra) if record else ("", "")
    return f"pip install {option}'{source or f'mildroute[{extra}]'}'"


def _source(record: dict[str, Any], extra: str) -> tuple[str, str]:
    """Option and requirement for what pip recorded of an installation by path or URL (PEP 610).

    The requirement is empty if a folder or file is gone, or no shell can be given its name simply.
    """
    from pathlib import Path
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    url: str = record["url"]
    if "vcs_info" in record:
        vcs = record["vcs_info"]
        return "", f"mildroute[{extra}] @ {vcs['vcs']}+{url}@{vcs['commit_id']}"
    if not url.startswith("file:"):
        return "", f"mildroute[{extra}] @ {url}"
    path = Path(url2pathname(urlsplit(url).path))
    if not path.exists() or "'" in str(path):
        return "", ""
    option = "--editable " if record.get("dir_info", {}).get("editable") else ""
    return option, f"{'.' if path == Path.cwd() else path}[{extra}]"
