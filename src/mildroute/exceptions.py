"""Every exception that mildroute raises on purpose.

A message states the rule that was broken, the value that broke it and the way out.
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
    """Root of all errors raised by mildroute; catch it to catch them all."""


class ArgumentError(MildrouteError, ValueError):
    """An argument breaks a rule stated in the function's documentation."""


class ShapeError(ArgumentError):
    """An array does not have the shape that its role demands.

    Example:
        >>> raise ShapeError("scores must be (n, p), got shape (3,); add a row axis.")
        Traceback (most recent call last):
        mildroute.exceptions.ShapeError: scores must be (n, p), got shape (3,); add a row axis.
    """


class CostError(ArgumentError):
    """Costs or rewards hold values that no router can learn from.

    Example:
        >>> raise CostError("costs must be finite, got 2 non-finite values; drop those rows or impute them first.")
        Traceback (most recent call last):
        mildroute.exceptions.CostError: costs must be finite, got 2 non-finite values; drop those rows or impute them first.
    """


class MarginError(ArgumentError):
    """Margins are not all positive and finite.

    Example:
        >>> raise MarginError("margins must be positive, got -0.5; use a larger offset.")
        Traceback (most recent call last):
        mildroute.exceptions.MarginError: margins must be positive, got -0.5; use a larger offset.
    """


class ArtifactError(MildrouteError):
    """A stored router cannot be read, or a router cannot be stored.

    Example:
        >>> raise ArtifactError("router.json must have schema 1, got 7; upgrade mildroute.")
        Traceback (most recent call last):
        mildroute.exceptions.ArtifactError: router.json must have schema 1, got 7; upgrade mildroute.
    """


class TableError(MildrouteError, ValueError):
    """A cost table cannot be read, or its content breaks a rule of the format.

    Example:
        >>> raise TableError("column 'score:a', row 3 (query_id 'q3'): a score must lie in [0, 1], got 7.0; divide by the largest score.")
        Traceback (most recent call last):
        mildroute.exceptions.TableError: column 'score:a', row 3 (query_id 'q3'): a score must lie in [0, 1], got 7.0; divide by ...
    """


class MissingExtraError(MildrouteError, ImportError):
    """A part of mildroute needs an optional dependency that is not installed.

    Example:
        >>> raise MissingExtraError.for_package("torch", extra="torch", user="mildroute.losses")
        Traceback (most recent call last):
        mildroute.exceptions.MissingExtraError: mildroute.losses needs torch; run: pip install 'mildroute[torch]'
    """

    @classmethod
    def for_package(cls, package: str, *, extra: str, user: str) -> MissingExtraError:
        """Name the package, who needs it and the command that installs it."""
        return cls(f"{user} needs {package}; run: pip install 'mildroute[{extra}]'")


class UnreachableTargetError(MildrouteError):
    """No operating point meets the target; the message says how far it can be met.

    Example:
        >>> raise UnreachableTargetError("no price weight keeps 1,000 queries below 1 dollar; raise the budget.")
        Traceback (most recent call last):
        mildroute.exceptions.UnreachableTargetError: no price weight keeps 1,000 queries below 1 dollar; raise the budget.
    """
