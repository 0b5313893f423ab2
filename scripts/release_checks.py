"""What a release must be.

One version everywhere, described in the changelog, and nothing in it but committed files of the
package: no tests in the wheel, no data sets, no trace of the machine that built it.

Run: python scripts/release_checks.py dist
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from version import ROOT, faults as version_faults, version

MOST_BYTES = 2_000_000
# The largest are cases of judges' tests, with 150 kB; a data set has more.
MOST_BYTES_OF_A_FILE = 300_000
SUFFIXES = {".py", ".typed", ".html", ".css", ".js", ".lua", ".yaml"}
REQUIRED = ("pyproject.toml", "LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff")


def faults(folder: Path, stated: str) -> list[str]:
    """What is wrong with the files of a release, in words."""
    wheels, sdists = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    if len(wheels) != 1 or len(sdists) != 1:
        return [
            f"one wheel and one sdist are wanted, got {len(wheels)} and {len(sdists)} in {folder}"
        ]
    committed = committed_files()
    return [
        *version_faults(),
        *_wheel(wheels[0], stated, committed),
        *_sdist(sdists[0], stated, committed),
    ]


def committed_files() -> set[str]:
    """Paths of all files that git knows."""
    git = shutil.which("git") or "git"
    run = subprocess.run([git, "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return set(run.stdout.decode().split("\0"))


def _wheel(path: Path, stated: str, committed: set[str]) -> list[str]:
    with zipfile.ZipFile(path) as wheel:
        held = {name: wheel.read(name) for name in wheel.namelist() if ".dist-info/" not in name}
    wrong = _contents(path, held) + [
        f"{path.name} must hold the committed package alone, got {name}"
        for name in held
        if f"src/{name}" not in committed or not _is_of_the_package(PurePosixPath(name))
    ]
    if not path.name.startswith(f"mildroute-{stated}-"):
        wrong.append(f"the wheel must be of version {stated}, got {path.name}")
    return wrong


def _is_of_the_package(name: PurePosixPath) -> bool:
    is_test = "tests" in name.parts or name.name.startswith(("test_", "conftest"))
    return name.parts[0] == "mildroute" and name.suffix in SUFFIXES and not is_test


def _sdist(path: Path, stated: str, committed: set[str]) -> list[str]:
    top = f"mildroute-{stated}/"
    with tarfile.open(path) as sdist:
        files = [member for member in sdist.getmembers() if member.isfile()]
        held = {
            member.name.removeprefix(top): stream.read()
            for member in files
            if (stream := sdist.extractfile(member)) is not None
        }
    return [
        *_contents(path, held),
        *(f"{path.name} must hold {top}{name}" for name in REQUIRED if name not in held),
        *(
            f"{path.name} must hold committed files alone, got {name}"
            for name in held.keys() - committed - {"PKG-INFO"}
        ),
    ]


def _contents(path: Path, held: Mapping[str, bytes]) -> list[str]:
    """Faults of size, and files that name a folder of this machine."""
    wrong = [
        f"{path.name} must hold files of at most {MOST_BYTES_OF_A_FILE:,} bytes, got"
        f" {len(content):,} in {name}"
        for name, content in held.items()
        if len(content) > MOST_BYTES_OF_A_FILE
    ]
    folder = str(ROOT.resolve()).encode()
    wrong += [
        f"{path.name} must not name {ROOT.resolve()}, which {name} does"
        for name, content in held.items()
        if folder in content
    ]
    if path.stat().st_size > MOST_BYTES:
        wrong.append(
            f"{path.name} must have at most {MOST_BYTES:,} bytes, got {path.stat().st_size:,}"
        )
    return wrong


def main() -> None:
    """Print what is wrong and fail, or say that nothing is."""
    wrong = faults(Path(sys.argv[1]), version())
    if wrong:
        raise SystemExit("\n".join(wrong))
    sys.stdout.write(f"version {version()}: the files of the release are in order\n")


if __name__ == "__main__":
    main()
