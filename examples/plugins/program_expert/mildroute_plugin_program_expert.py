"""Any program of this machine as an expert.

The query on its standard input, the answer on its output.
"""

import asyncio
import subprocess
import time

from mildroute.exceptions import ArgumentError
from mildroute.experts import Answer, Expert, Query


class Program(Expert):
    """Settings: `command` (a list of words).

    If you like, `seconds`, `version`, `concurrency` and `price: {per_answer: ...}`.
    """

    def __init__(self, settings: dict) -> None:
        self.name = settings["name"]
        self._command = settings.get("command")
        self._seconds = settings.get("seconds", 30)
        if not isinstance(self._command, list):
            raise ArgumentError(
                f"'command' must be a list of words such as [bc, -l], got {self._command!r}."
            )
        self._dollars = settings.get("price", {}).get("per_answer", 0.0)
        self.concurrency = settings.get("concurrency", 1)
        self.version = (  # whatever changes answers or their price
            f"{settings.get('version', 1)} {self._command} {self._dollars}"
        )

    async def answer(self, batch: list[Query]) -> list[Answer]:
        """One answer for each query; a program that fails is an answer with an error."""
        return [await asyncio.to_thread(self._run, query.input) for query in batch]

    def _run(self, text: str) -> Answer:
        start = time.monotonic()
        try:
            done = subprocess.run(
                self._command,
                input=text.encode(),
                capture_output=True,
                check=True,
                timeout=self._seconds,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return Answer(None, error=f"{type(error).__name__}: {error}")
        return Answer(
            done.stdout.decode(errors="replace").strip(),
            dollars=self._dollars,
            latency=time.monotonic() - start,
        )

    def max_cost(self, _query: Query) -> float:
        """What a query may cost at most: estimates and the cap on dollars count on it."""
        return self._dollars
