"""Any program of this machine as an expert: the query on its standard input, the answer on its output."""

import asyncio
import subprocess
import time

from mildroute.exceptions import ArgumentError
from mildroute.experts import Answer, Query


class Program:
    """Settings: `command` (a list of words); if you like, `seconds`, `version`, `concurrency` and `price: {per_answer: ...}`."""

    def __init__(self, settings: dict) -> None:
        self.name, self.price, self.batch_size = settings["name"], None, 1  # no price per token; one query at a time
        self._command, self._seconds = settings.get("command"), settings.get("seconds", 30)
        if not isinstance(self._command, list):
            raise ArgumentError(f"'command' must be a list of words such as [bc, -l], got {self._command!r}.")
        self._dollars, self.concurrency = settings.get("price", {}).get("per_answer", 0.0), settings.get("concurrency", 1)
        self.version = f"{settings.get('version', 1)} {self._command} {self._dollars}"  # whatever changes answers or their price

    async def answer(self, batch: list[Query]) -> list[Answer]:
        """One answer for each query; a program that fails is an answer with an error."""
        return [await asyncio.to_thread(self._ask, query.input) for query in batch]

    def _ask(self, text: str) -> Answer:
        start = time.monotonic()
        try:
            done = subprocess.run(self._command, input=text.encode(), capture_output=True, check=True, timeout=self._seconds)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return Answer(None, error=f"{type(error).__name__}: {error}")
        return Answer(done.stdout.decode(errors="replace").strip(), dollars=self._dollars, latency=time.monotonic() - start)

    def max_cost(self, _query: Query) -> float:
        """What a query may cost at most: estimates and the cap on dollars count on it."""
        return self._dollars

    async def close(self) -> None:
        """Nothing is kept open between queries."""
