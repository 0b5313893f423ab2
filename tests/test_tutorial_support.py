"""The tutorial on support emails is executed: every word comes out again, figures nearly so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.pages import ROOT, generator

GENERATOR = generator(ROOT / "docs" / "tutorials" / "generate.py")
NUMBER = re.compile(r"-?\d[\d,]*\.?\d*")


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return GENERATOR.run_support(tmp_path_factory.mktemp("support"))  # type: ignore[no-any-return]


def shape(text: str) -> str:
    return " ".join(re.sub(r"\d+ s\b", "#", NUMBER.sub("#", text)).split())


def figures(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(text)]


def test_the_page_goes_from_emails_to_decisions() -> None:
    commands = [command for command, _ in GENERATOR.blocks(GENERATOR.SUPPORT)]
    assert [re.findall(r"^(?:mildroute|python) (\S+)", command)[0] for command in commands] == [
        "make_emails.py",
        "collect",
        "inspect",
        "fit",
        "evaluate",
        "route",
        "route",
    ]


@pytest.mark.parametrize(
    ("command", "shown"),
    GENERATOR.blocks(GENERATOR.SUPPORT),
    ids=lambda text: " ".join(text.split()[:3]),
)
def test_what_a_command_prints_stands_on_the_page(
    command: str, shown: str, printed: dict[str, str]
) -> None:
    now = printed[command]
    assert shape(now) == shape(shown)
    if "collect" not in command:  # its rates are those of the machine
        assert figures(now) == pytest.approx(figures(shown), rel=0.05, abs=0.5)


def test_emails_are_the_same_for_everyone(printed: dict[str, str], tmp_path: Path) -> None:
    assert printed
    (tmp_path / "answers").mkdir()
    again = GENERATOR.output_of(
        f"python {ROOT / 'examples' / 'support' / 'make_emails.py'} --emails 20", tmp_path
    )
    assert again == "20 emails, answers of small, large\n"
    assert len((tmp_path / "emails.jsonl").read_text().splitlines()) == 20
