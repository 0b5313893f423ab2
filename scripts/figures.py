"""Lists stored results that today's code may not give.

They lack a command, date, commit or code hash, or were measured on other code.

Run: scripts/figures                  (exit code 1 if benchmarks/results/STALE.md is not this list)
     scripts/figures --all            (exit code 1 if there is any: before a release)
     scripts/figures --write          (write STALE.md; results that stay in it keep their day)
     scripts/figures --code COMMAND   (the files that a command measures, and their hash)
"""

from __future__ import annotations

import argparse
import datetime
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.code_hash import (
    ROOT,
    STALE,
    code_hash,
    faults,
    known_stale,
    modules_of,
    script_of,
)

HEAD = """# Results that are older than the code they measure

Each was measured on code that has changed since, or before results recorded a hash of their code.
Running its command again removes it from this list, which `scripts/figures --write` writes. A test
fails if a result is out of date and not listed, or listed and up to date.

"""


def write_list(found: dict[str, str]) -> None:
    """Write the list; what was listed before keeps its day."""
    known = known_stale() if STALE.exists() else {}
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    lines = [
        f"- `{name}`, listed {known.get(name, today)}: {reason}\n" for name, reason in found.items()
    ]
    STALE.write_text(HEAD + ("".join(lines) or "None.\n"), encoding="utf-8")


def print_code(command: str) -> None:
    """Print the files that a command measures, and their hash."""
    files = [path.relative_to(ROOT).as_posix() for path in modules_of(script_of(command))]
    sys.stdout.write("\n".join([*files, f"{len(files)} files, code: {code_hash(command)}", ""]))


def print_stale(found: dict[str, str], known: dict[str, str]) -> None:
    """Print what is stale, and what is listed without being so."""
    for name, reason in found.items():
        listed = f"listed {known[name]}" if name in known else "NOT LISTED"
        sys.stdout.write(f"{name:<48} {listed:<18} {reason}\n")
    for name in known.keys() - found.keys():
        sys.stdout.write(f"{name:<48} up to date, yet listed: run scripts/figures --write\n")
    sys.stdout.write(f"{len(found)} results may differ from what today's code gives\n")


def main() -> None:
    """Do what the options say."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true", help="fail for listed results, too")
    parser.add_argument("--write", action="store_true", help="write the list of stale results")
    parser.add_argument("--code", metavar="COMMAND", help="print what a command measures")
    options = parser.parse_args()
    if options.code:
        print_code(options.code)
        return
    found = faults()
    if options.write:
        write_list(found)
    known = known_stale()
    print_stale(found, known)
    sys.exit(1 if found.keys() != known.keys() or (options.all and found) else 0)


if __name__ == "__main__":
    main()
