"""Tells the version and checks that every file states it, or sets it in all of them.

The package states it, in src/mildroute/__init__.py; the other files follow.

Run: python3 scripts/version.py                              (tell and check)
     python3 scripts/version.py 0.1.0 [--date 2026-11-30]    (set; a date goes into the changelog)
     python3 scripts/version.py --tag v0.1.0                 (check what a tag needs besides)
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOME = "src/mildroute/__init__.py"
VERSION = re.compile(r"\d+\.\d+\.\d+(\.dev\d+|(a|b|rc)\d+)?")
# Files that state the version, and what stands around it.
ALWAYS = {HOME: r'(?m)(?<=^__version__ = ")[^"]+', "CITATION.cff": r'(?m)(?<=^version: ")[^"]+'}
# These name an image, which is built of released versions only.
RELEASED = {
    "deploy/helm/mildroute/Chart.yaml": r'(?m)(?<=^appVersion: ")[^"]+',
    "deploy/compose.yaml": r"(?<=image: mildroute:)\S+",
    "deploy/Dockerfile": r"(?<=-t mildroute:)\S+",
}
SECTION = r"(?m)^## {version} - (\S+)$"
UNDATED = "unreleased"


def version() -> str:
    """The version that the package states."""
    return stated_in(HOME, ALWAYS[HOME])


def stated_in(name: str, pattern: str) -> str:
    """The version in a file of the repository."""
    found = re.search(pattern, (ROOT / name).read_text(encoding="utf-8"))
    if found is None:
        raise SystemExit(f"{name} must state the version, got none; put it back.")
    return found[0]


def places(stated: str) -> dict[str, str]:
    """Files that must state this version, with their patterns."""
    return ALWAYS if "dev" in stated else ALWAYS | RELEASED


def date_of(stated: str) -> str | None:
    """Date of a version's section in the changelog, ``unreleased``, or None without a section."""
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(SECTION.format(version=re.escape(stated)), changes)
    return None if found is None else found[1]


def faults(tag: str | None = None) -> list[str]:
    """What is wrong with what the files say of the version, for a tag if there is one."""
    stated = version()
    wrong = [
        f"{name} must state version {stated}, got {other}; run: python3 scripts/version.py {stated}"
        for name, pattern in places(stated).items()
        if (other := stated_in(name, pattern)) != stated
    ]
    date = date_of(stated)
    if "dev" not in stated and date is None:
        wrong.append(f"CHANGELOG.md must have a section '## {stated} - {UNDATED}' or with a date")
    if tag is not None and tag != f"v{stated}":
        wrong.append(f"the tag must be v{stated}, got {tag}; tag the commit that states {tag}")
    if tag is not None and not re.fullmatch(r"\d{4}-\d\d-\d\d", date or ""):
        wrong.append(
            f"CHANGELOG.md must date {stated}, got {date}; run: python3 scripts/version.py"
            f" {stated} --date YYYY-MM-DD"
        )
    return wrong


def set_version(stated: str, date: str | None) -> None:
    """Write a version into every file that states it, and the date of its section if given."""
    if not VERSION.fullmatch(stated):
        raise SystemExit(f"a version must look like 0.1.0, 0.1.0rc1 or 0.2.0.dev0, got {stated!r}")
    for name, pattern in places(stated).items():
        path = ROOT / name
        path.write_text(re.sub(pattern, stated, path.read_text(encoding="utf-8")), encoding="utf-8")
    if date is not None:
        _date(stated, date)


def _date(stated: str, date: str) -> None:
    path = ROOT / "CHANGELOG.md"
    line, changes = f"## {stated} - {date}", path.read_text(encoding="utf-8")
    dated, count = re.subn(SECTION.format(version=re.escape(stated)), line, changes)
    if not count:
        # What was not released until now is what this version brings.
        dated = changes.replace("## Unreleased\n", f"## Unreleased\n\n{line}\n", 1)
    path.write_text(dated, encoding="utf-8")


def main() -> None:
    """Set the version if one is given; print it, or what is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version", nargs="?", help="to be set everywhere")
    parser.add_argument("--date", help="of the release, for the changelog")
    parser.add_argument("--tag", help="that the commit gets")
    options = parser.parse_args()
    if options.version is not None:
        set_version(options.version, options.date)
    elif options.date is not None:
        parser.error("a date needs the version that it belongs to")
    if wrong := faults(options.tag):
        raise SystemExit("\n".join(wrong))
    sys.stdout.write(f"{version()}\n")


if __name__ == "__main__":
    main()
