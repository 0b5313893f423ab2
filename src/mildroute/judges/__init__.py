"""Judges: how good an answer is, from 0 to 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute.lazy import lazy_names

if TYPE_CHECKING:
    from mildroute.judges.protocol import Judge, Verdict

__all__ = ["Judge", "Verdict"]

__getattr__, __dir__ = lazy_names(__name__, {"protocol": ("Judge", "Verdict")})
