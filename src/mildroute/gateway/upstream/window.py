"""Counts of calls over the last seconds."""

from __future__ import annotations

__all__ = ["CallWindow"]

_PANES = 10


class CallWindow:
    """The numbers of calls and failures over the last seconds.

    They are kept in a ring of panes. The oldest pane expires as a whole.
    """

    __slots__ = ("_calls", "_failures", "_newest", "_width", "calls", "failures")

    def __init__(self, seconds: float) -> None:
        self._width = seconds / _PANES
        self._calls = [0] * _PANES
        self._failures = [0] * _PANES
        self._newest = 0
        self.calls = 0
        self.failures = 0

    def count(self, now: float, failures: int) -> None:
        """Count a call that begins now; ``failures`` is 1 if it has failed."""
        pane = int(now / self._width)
        if pane != self._newest:
            self._advance(pane)
        index = pane % _PANES
        self._calls[index] += 1
        self._failures[index] += failures
        self.calls += 1
        self.failures += failures

    def exceeds(self, failure_rate: float, min_calls: int) -> bool:
        """Return whether there were enough calls and too large a share of them failed."""
        return self.calls >= min_calls and self.failures >= failure_rate * self.calls

    def _advance(self, pane: int) -> None:
        for old in range(max(self._newest + 1, pane - _PANES + 1), pane + 1):
            index = old % _PANES
            self.calls -= self._calls[index]
            self.failures -= self._failures[index]
            self._calls[index] = 0
            self._failures[index] = 0
        self._newest = pane
