"""Every exception that mildroute raises deliberately.

A message states the broken rule, the offending value and the remedy.
"""

from __future__ import annotations

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
    """The base class of all errors that mildroute raises."""


class ArgumentError(MildrouteError, ValueError):
    """An argument breaks a documented rule."""


class ShapeError(ArgumentError):
    """An array does not have the required shape."""


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
        """Return an error that names the package, the feature and the command that installs it."""
        return cls(f"{user} needs {package}; run: {install_command(extra)}")


class UnreachableTargetError(MildrouteError):
    """No operating point meets the target; the message says how far it can be met."""


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this installation.

    pip keeps the installed version, wherever it came from, and installs only what the extra lacks.
    """
    return f"pip install 'mildroute[{extra}]'"
