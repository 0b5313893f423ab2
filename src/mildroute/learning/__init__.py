"""Learning from traffic: fit candidates, compare them with the router in use, promote, watch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._optional import lazy_exports

if TYPE_CHECKING:
    from mildroute.learning.learner import Learner as Learner

__all__, __getattr__, __dir__ = lazy_exports(__name__)
