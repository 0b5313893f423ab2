"""Why a line does not come out as printed: short causes, each tied to figures that are measured."""

from __future__ import annotations

from mildroute.engine.summaries import LineFigures

__all__ = ["CAUSES", "agreement", "cause_of"]

_CLOSE = 0.01
"""Loss within which a router counts as no better than the best single expert."""

CAUSES = {
    "decision": "With unequal margins the largest score is not the best choice, even at the optimum. The very same scores, decoded to the "
    "posterior that they stand for, pay clearly less. See [the decision rule](theory/decision.md).",
    "single": "TDEF already pays what the best single expert pays. A dearer expert must be right more often by the whole difference of "
    "the fees, an equally dear one must be right where the best one errs, and no method here finds enough such rows.",
    "noise": "The difference of MILD tuned to TDEF is within noise: its interval covers zero.",
    "reward": "MILD tuned is clearly worse than TDEF. Its margins are nearly equal, so what is left is its reward, the sum of the others' "
    "costs, which is nearly uniform for several experts: a likely cause, not a proven one.",
    "open": "Not explained.",
}
"""What the short names in the tables mean."""


def agreement(figures: LineFigures, method: str) -> str:
    """Whether a method beats TDEF, as the paper says of MILD.

    Args:
        figures: A line.
        method: Name of the method.

    Returns:
        ``"yes"``, ``"no"``, or with a question mark where the interval covers zero; ``"-"`` without results.

    Example:
        >>> agreement.__name__
        'agreement'
    """
    gap = figures.gaps.get(method)
    if gap is None:
        return "-"
    if gap.value == 0:
        return "equal"
    return ("yes" if gap.value < 0 else "no") + ("?" if gap.verdict == "open" else "")


def cause_of(figures: LineFigures) -> str:
    """Short names of the causes for which a line does not come out as printed; empty where it does.

    Args:
        figures: A line.

    Returns:
        Keys of :data:`CAUSES` with commas between, that of MILD printed first, or an empty string.

    Example:
        >>> sorted(CAUSES)
        ['decision', 'noise', 'open', 'reward', 'single']
    """
    return ", ".join(filter(None, [_cause_of_printed(figures), _cause_of_tuned(figures)]))


def _cause_of_printed(figures: LineFigures) -> str:
    """Why MILD as printed is worse than TDEF, where it is."""
    printed, decoded = figures.gaps.get("mild"), figures.gaps.get("mild-decoded")
    if printed is None or printed.verdict != "worse":
        return ""
    # Intervals of two differences to the same baseline that do not even touch.
    return "decision" if decoded is not None and decoded.high < printed.low else "open"


def _cause_of_tuned(figures: LineFigures) -> str:
    """Why tuning it does not make it better than TDEF, where it does not."""
    tuned = figures.gaps.get("mild-tuned")
    if tuned is None or tuned.verdict == "better":
        return ""
    if figures.spreads["tdef"].mean > figures.best_single - _CLOSE:
        return "single"
    return "noise" if tuned.verdict == "open" else "reward"
