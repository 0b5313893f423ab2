"""The command line: the only package that prints."""

from __future__ import annotations

__all__: list[str] = []
