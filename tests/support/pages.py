"""The pages that people read, by hand or generated, and the scripts that write them."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
MADE_BY_THE_SITE = (ROOT / "docs" / "api", ROOT / "docs" / "gallery")


FENCE = re.compile(r" *(`{3,}|:{3,})(.*)")
PROSE = re.compile(
    r"\{(?:figure|note|warning|tip|admonition|grid|grid-item-card|dropdown|glossary|tab-set|tab-item|details)\}"
)
# What stands between the sentences of a page, or is none of its words.
MARKUP = re.compile(
    r"\A---\n.*?\n---\n"  # settings of a page
    r"|^ *:[\w-]+:[^\n]*$"  # options of a directive
    r"|<!--.*?-->|<style.*?</style>|<script.*?</script>|<[^>\n]+>|\$\$.*?\$\$|(?<=\])\([^)\s]*\)",
    flags=re.DOTALL | re.MULTILINE,
)
BLOCK = re.compile(
    r"\n\s*\n|\n(?=\s*(?:[-*:]|\d+\.) )|^#.*$|^ *\|.*$|^\(\S+\)=$", flags=re.MULTILINE
)
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')*\]]*\s+(?=[A-Z0-9`\"*\[({])")


def markdown_pages() -> list[Path]:
    folders = [
        page
        for name in ("docs", "examples", "deploy", ".github")
        for page in (ROOT / name).rglob("*.md")
    ]
    return sorted(
        [
            *ROOT.glob("*.md"),
            *(
                page
                for page in folders
                if not any(made in page.parents for made in MADE_BY_THE_SITE)
            ),
        ]
    )


def prose_of(text: str) -> str:
    """Lines that are no code.

    Those outside fences, and inside fences of directives that hold text.
    """
    kept: list[str] = []
    fences: list[tuple[str, bool]] = []
    for line in text.splitlines():
        found = FENCE.fullmatch(line)
        if found and not found[2].strip() and fences and fences[-1][0] == found[1]:
            fences.pop()
        elif found and all(is_prose for _, is_prose in fences):
            fences.append((found[1], PROSE.match(found[2]) is not None))
        elif all(is_prose for _, is_prose in fences):
            kept.append(line)
    return "\n".join(kept)


def sentences_of(text: str) -> list[str]:
    """Sentences of a page; headings and tables have none, and code counts as one word."""
    plain = re.sub(r"`[^`]*`|(?<!\\)\$[^$\n]+\$", "Code", MARKUP.sub(" ", prose_of(text)))
    blocks = (" ".join(block.split()) for block in BLOCK.split(plain))
    found = [sentence for block in blocks for sentence in SENTENCE_END.split(block)]
    return [sentence for sentence in found if n_words(sentence) > 2]


def n_words(text: str) -> int:
    """Words and numbers of a text."""
    return len(re.findall(r"\w[\w'.,%-]*", text))


def generator(path: Path) -> ModuleType:
    """The script that writes a page, which is in no package."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
