"""The pages for operators say what the code says.

Regenerated to the byte, and every file on them is one that the gateway takes.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mildroute.decision.decision import REASONS
from mildroute.experts.config import read_experts
from mildroute.gateway.config import GatewayConfig, read_config
from mildroute.gateway.keys import KeyStore
from tests.support.pages import generator

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
OPERATIONS = DOCS / "operations"
BLOCK = re.compile(r"```yaml\n(.*?)```", flags=re.DOTALL)
HAND_WRITTEN = [
    DOCS / "guide" / "serving.md",
    DOCS / "guide" / "feedback.md",
    OPERATIONS / "security.md",
    OPERATIONS / "scaling.md",
]


GENERATE = generator(OPERATIONS / "generate.py")
SETTINGS = generator(OPERATIONS / "settings_page.py")


@pytest.mark.parametrize(
    ("path", "text"),
    GENERATE.pages().items(),
    ids=lambda value: value.stem if isinstance(value, Path) else "",
)
def test_pages_are_what_the_code_says(path: Path, text: str) -> None:
    assert path.read_text(encoding="utf-8") == text, "run python docs/operations/generate.py"


def test_the_file_of_defaults_is_taken_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "gateway.yaml").write_text(SETTINGS.default_file(), encoding="utf-8")
    assert read_config(tmp_path / "gateway.yaml") == GatewayConfig()


def test_every_setting_has_an_entry() -> None:
    page = (OPERATIONS / "settings.md").read_text(encoding="utf-8")
    names = re.findall(r"^ *(?:# )?(\w+):", SETTINGS.default_file(), flags=re.MULTILINE)
    assert len(names) > 40
    assert [
        name
        for name in names
        if f"`{name}`" not in page and f".{name}`" not in page and f"## {name}" not in page
    ] == []


def test_every_reason_and_every_alert_is_explained() -> None:
    codes, alerts = (
        (OPERATIONS / name).read_text(encoding="utf-8") for name in ("codes.md", "alerts.md")
    )
    assert all(f"`{reason}`\n: " in codes for reason in (*REASONS, "fallback"))
    assert alerts.count("\n## ") == alerts.count("\nNow:\n") == alerts.count("\nLater: ") > 5


def test_errors_are_found_in_the_source() -> None:
    found = GENERATE._errors()
    assert (503, "`overloaded`", "too many requests are in flight; retry later.") in found
    assert len({code for _, code, _ in found}) > 10
    assert all(message.strip("… ") for _, _, message in found)


@pytest.mark.parametrize("page", HAND_WRITTEN, ids=lambda page: page.stem)
def test_settings_in_the_text_are_taken(page: Path, tmp_path: Path) -> None:
    for place, block in enumerate(BLOCK.findall(page.read_text(encoding="utf-8"))):
        file = tmp_path / f"{place}.yaml"
        file.write_text(block, encoding="utf-8")
        if "sha256:" in block:
            assert KeyStore.read(file).clients
        elif block.startswith("experts:"):
            assert read_experts(file).experts
        elif "base_url" not in block:
            assert read_config(file) != GatewayConfig()
