"""The end of a request: its record, its bill, its figures; once each, whatever happened."""

from __future__ import annotations

from mildroute.serving.course import Course
from mildroute.serving.parts import Parts
from mildroute.serving.roster import Roster
from mildroute.serving.time_limit import TimeLimit

__all__ = ["Closing"]

_PATIENCE = 1.0


class Closing:
    """Writes down what came of requests.

    Args:
        parts: Of the gateway.
        roster: Who there is.

    Example:
        >>> Closing.__name__
        'Closing'
    """

    def __init__(self, parts: Parts, roster: Roster) -> None:
        self._parts, self._roster = parts, roster

    def write(self, course: Course, shadow: str = "") -> None:
        """Write down a request that was decided; at once, so that nothing can come between."""
        record = course.record(self._roster, shadow, keep_text=self._parts.settings.log.keep_text)
        self._parts.log.write(record)
        self._parts.telemetry.answered(record, course.added)
        course.trace.end(record)

    async def close(self, course: Course) -> None:
        """The same, but wait for the second router if it is still thinking; the answer is with its client already."""
        shadow = ""
        try:
            if course.shadow is not None:
                with TimeLimit(_PATIENCE):
                    shadow = await course.shadow
        except TimeoutError:
            pass
        finally:
            self.write(course, shadow)
