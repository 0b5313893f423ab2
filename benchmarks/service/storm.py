"""What goes wrong in a storm.

Experts fail in every way but one of them, and the artifact is replaced, well and badly, all the
time.
"""

from __future__ import annotations

import itertools
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from artifacts import bad_artifacts, make_router, put_in_place
from processes import House

_FAULTS = ("kill", "error", "closing", "hang", "refuse", "slow", "reset", "some errors", "cut")
_SHARES = {"some errors": ("error", 0.5), "cut": ("cut", 0.2)}


class Storm(threading.Thread):
    """Experts fail, one or two of three at a time, and recover.

    The third is well for as long as a request may take, then another one is.

    Args:
        house: Whose experts.
        beat: Seconds that a fault lasts.
        calm: Seconds without faults before another one is spared: no request meets one as its own
            faults end.

    Attributes:
        faults: How often each was tried.
    """

    def __init__(self, house: House, beat: float, calm: float = 1.5) -> None:
        super().__init__(daemon=True)
        self._house, self._beat, self._calm, self._stopped = house, beat, calm, threading.Event()
        self.faults: Counter[str] = Counter()

    def run(self) -> None:
        names, place = list(self._house.experts), 0
        for spared in itertools.cycle(reversed(names)):
            others = [name for name in names if name != spared]
            for _ in range(len(_FAULTS) // 2):
                if self._stopped.is_set():
                    return
                hit = {others[place % 2]: _FAULTS[place % len(_FAULTS)]}
                if place % 3:
                    hit[others[1 - place % 2]] = _FAULTS[(place + 5) % len(_FAULTS)]
                self._strike(hit)
                place += 1
            self._stopped.wait(self._calm)

    def _strike(self, hit: dict[str, str]) -> None:
        for name, fault in hit.items():
            self._begin(name, fault)
        self._stopped.wait(self._beat)
        for name, fault in hit.items():
            self._end(name, fault)
        self._stopped.wait(self._beat / 3)

    def stop(self) -> None:
        """All are well when this returns."""
        self._stopped.set()
        self.join()

    def _begin(self, name: str, fault: str) -> None:
        self.faults[fault] += 1
        expert = self._house.experts[name]
        if fault == "kill":
            expert.kill()
        else:
            mode, share = _SHARES.get(fault, (fault, 1.0))
            expert.tell(mode, share=share)

    def _end(self, name: str, fault: str) -> None:
        expert = self._house.experts[name]
        if fault == "kill":
            expert.start()
        expert.tell("ok")


class Reloads(threading.Thread):
    """The artifact is replaced.

    By the operator's path and by a signal, by good ones and by what is none.

    Args:
        house: Whose gateway.
        pause: Seconds between two of them.

    Attributes:
        done: Replacements that worked.
        refused: Bad artifacts that were refused while the old router stayed.
        faults: What went wrong.
    """

    def __init__(self, house: House, pause: float) -> None:
        super().__init__(daemon=True)
        self._house, self._pause, self._stopped = house, pause, threading.Event()
        self._turn = threading.Lock()
        self._work = house.folder / "offered"
        self._good = [
            make_router(self._work / f"good-{seed}", seed, cascade=house.cascade) for seed in (1, 2)
        ]
        self._bad = itertools.cycle(bad_artifacts(self._good[0], self._work))
        self.done = self.refused = 0
        self.faults: list[str] = []

    def run(self) -> None:
        steps = itertools.cycle(
            (self._by_path, self._refused_by_path, self._by_signal, self._refused_by_signal)
        )
        for place, step in enumerate(steps):
            if self._stopped.wait(self._pause):
                return
            with self._turn:
                try:
                    step(self._good[place // 2 % 2])
                except OSError as error:
                    self.faults.append(f"{step.__name__}: {error}")

    def stop(self) -> None:
        self._stopped.set()
        self.join()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Without replacements, while the gateway is away."""
        with self._turn:
            yield

    def _offer(self, folder: Path) -> None:
        copy = self._work / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy, copy_function=copied)
        put_in_place(copy, self._house.gateway.router)

    def _by_path(self, good: Path) -> None:
        self._offer(good)
        status = self._house.gateway.reload(self._house.admin_key)
        self._note(
            status == 200 and self._serves(good), f"/admin/reload of a good artifact gave {status}"
        )

    def _by_signal(self, good: Path) -> None:
        self._offer(good)
        self._house.gateway.signal(signal.SIGHUP)
        until = time.monotonic() + 30
        while not self._serves(good) and time.monotonic() < until:
            time.sleep(0.05)
        self._note(self._serves(good), "SIGHUP did not bring the new artifact")

    def _refused_by_path(self, good: Path) -> None:
        name, folder = next(self._bad)
        before = self._house.gateway.digest()
        self._offer(folder)
        status = self._house.gateway.reload(self._house.admin_key)
        self._note_refusal(
            status == 422 and self._house.gateway.digest() == before, f"{name}: {status}"
        )
        self._offer(good)

    def _refused_by_signal(self, good: Path) -> None:
        name, folder = next(self._bad)
        before = self._house.gateway.digest()
        self._offer(folder)
        said = self._house.gateway.output().count("was not replaced")
        self._house.gateway.signal(signal.SIGHUP)
        until = time.monotonic() + 30
        while (
            self._house.gateway.output().count("was not replaced") == said
            and time.monotonic() < until
        ):
            time.sleep(0.05)
        self._note_refusal(
            self._house.gateway.digest() == before and time.monotonic() < until, f"{name} by SIGHUP"
        )
        self._offer(good)

    def _serves(self, folder: Path) -> bool:
        import json

        return str(json.loads((folder / "router.json").read_text())["sha256"]).startswith(
            self._house.gateway.digest() or "none"
        )

    def _note(self, is_good: bool, fault: str) -> None:
        self.done += is_good
        if not is_good:
            self.faults.append(fault)

    def _note_refusal(self, is_good: bool, fault: str) -> None:
        self.refused += is_good
        if not is_good:
            self.faults.append(f"a bad artifact was not refused as it should be: {fault}")


def copied(source: str, target: str) -> object:
    """Pipes are made anew: to copy one is to wait for it."""
    import os

    if Path(source).is_fifo():
        os.mkfifo(target)
        return target
    return shutil.copy2(source, target)
