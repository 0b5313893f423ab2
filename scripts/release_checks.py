"""What a release must be.

One version everywhere, described in the changelog, and nothing in it but the package.

Run: python scripts/release_checks.py dist
"""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_BYTES = 2_000_000
SUFFIXES = {
    ".py",
    ".typed",
    ".html",
    ".css",
    ".js",
    ".json",
    ".csv",
    ".md",
    ".yaml",
    ".j2",
    ".jinja",
    ".svg",
}


def version() -> str:
    """The version that the package states."""
    stated = re.search(
        r'^__version__ = "(.+)"$',
        (ROOT / "src/mildroute/__init__.py").read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
    if stated is None:
        raise SystemExit("src/mildroute/__init__.py must state __version__")
    return stated[1]


def faults(folder: Path, stated: str) -> list[str]:
    """What is wrong with the files of a release, in words."""
    wheels, sdists = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    if len(wheels) != 1 or len(sdists) != 1:
        return [
            f"one wheel and one sdist are wanted, got {len(wheels)} and {len(sdists)} in {folder}"
        ]
    return [*_texts(stated), *_wheel(wheels[0], stated), *_sdist(sdists[0], stated)]


def _texts(stated: str) -> list[str]:
    citation, changes = (
        (ROOT / "CITATION.cff").read_text(encoding="utf-8"),
        (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
    )
    wrong = (
        [] if f'version: "{stated}"' in citation else [f"CITATION.cff must state version {stated}"]
    )
    if "dev" not in stated and f"## [{stated}]" not in changes and f"## {stated}" not in changes:
        wrong.append(f"CHANGELOG.md must have a section {stated}")
    chart = (ROOT / "deploy/helm/mildroute/Chart.yaml").read_text(encoding="utf-8")
    if "dev" not in stated and f'appVersion: "{stated}"' not in chart:
        wrong.append(f"deploy/helm/mildroute/Chart.yaml must state appVersion {stated}")
    return wrong


def _wheel(path: Path, stated: str) -> list[str]:
    with zipfile.ZipFile(path) as wheel:
        names = [name for name in wheel.namelist() if ".dist-info/" not in name]
    strange = [
        name
        for name in names
        if not name.startswith("mildroute/") or Path(name).suffix not in SUFFIXES
    ]
    wrong = [f"{path.name} must hold the package alone, got {name}" for name in strange]
    if not path.name.startswith(f"mildroute-{stated}-"):
        wrong.append(f"the wheel must be of version {stated}, got {path.name}")
    if path.stat().st_size > MOST_BYTES:
        wrong.append(
            f"{path.name} must have at most {MOST_BYTES:,} bytes, got {path.stat().st_size:,}"
        )
    return wrong


def _sdist(path: Path, stated: str) -> list[str]:
    with tarfile.open(path) as sdist:
        names = sdist.getnames()
    wanted = [
        f"mildroute-{stated}/{name}"
        for name in ("pyproject.toml", "LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff")
    ]
    return [f"{path.name} must hold {name}" for name in wanted if name not in names]


def main() -> None:
    """Print what is wrong and fail, or say that nothing is."""
    wrong = faults(Path(sys.argv[1]), version())
    if wrong:
        raise SystemExit("\n".join(wrong))
    sys.stdout.write(f"version {version()}: the files of the release are in order\n")


if __name__ == "__main__":
    main()
