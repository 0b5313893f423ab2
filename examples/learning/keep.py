"""Keeps a command running, as systemd would, and kills it now and then to show that it may be.

Run: python keep.py --kills 5 --seconds 60 --seed 1 mildroute serve ...
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO


class Keeper:
    """Runs a command again and again; shows its first line, and logs all others."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._log = Path(f"{command[1]}.txt")
        self._is_silent = True

    def run(self, seconds: float | None) -> int | None:
        """Run it until it ends; or kill it (-9) after some seconds, which gives none."""
        with (
            self._log.open("ab") as log,
            subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=log) as process,
        ):
            reader = threading.Thread(target=self._copy, args=(process.stdout,))
            reader.start()
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                code = None
            reader.join()
        return code

    def _copy(self, lines: IO[bytes]) -> None:
        for line in lines:
            if self._is_silent:
                sys.stdout.write(line.decode())
                sys.stdout.flush()
            self._is_silent = False
            with self._log.open("ab") as log:
                log.write(line)


def main() -> None:
    """Run the command again whenever it ends."""
    parser = argparse.ArgumentParser(description="Keep a command running.")
    parser.add_argument("--kills", type=int, default=0, help="how often it is killed")
    parser.add_argument("--seconds", type=float, default=60.0, help="mean time before each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    moments = random.Random(options.seed)
    keeper = Keeper(options.command)
    for run in range(10**6):
        is_spared = run >= options.kills
        seconds = None if is_spared else moments.uniform(0.1, 1.9) * options.seconds
        code = keeper.run(seconds)
        with Path("ends.jsonl").open("a") as file:
            file.write(
                json.dumps({"name": options.command[1], "time": time.time(), "code": code}) + "\n"
            )
        if code is not None:
            time.sleep(1.0)


if __name__ == "__main__":
    main()
