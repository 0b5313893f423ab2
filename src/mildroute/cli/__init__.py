"""The command line: the only room that prints."""

from __future__ import annotations

__all__: list[str] = []
