"""Names and prose use the field's words: what was renamed does not come back."""

from __future__ import annotations

import io
import pkgutil
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "mildroute"
# Identifiers of an earlier vocabulary: metaphors, British spelling, bare participles.
REJECTED_NAMES = frozenset(
    re.findall(
        r"\w+",
        """
    Answering Archive Asked Asker Assessment Assignment Brain Breaker BreakerRules Caller Closing
    Collected ComplaintError Contestant Conversations Course DearestRouter Deciding Delivery Door
    EncoderRules Entrance Experience FactorisationRouter FailoverRules Fitted Front Gatekeeper
    Gauges GoneError Guard Hall Holder Journal KeyRing KnnRouter LdamRouter LineFiles
    LinearLossRouter LinearPlan LogRules Logged LoggedCosts LossRouter LostError Makers Minded
    MlpRegressionRouter NetworkPlan Noted Observed Opinion Outlay Outlook PaperMildRouter Parts
    Patience People PolicyRules Promise Purse Questioning Quiet Recorded Recorder Refusal Remains
    Renewal Replicates Roster Scored SmallDoors Spans Standing TdefRouter Team Telemetry Teller
    Thinking Throttle Tidied TimeLimit Trained Treasury VectorQueue Wire assemble assess brain
    caller complain dearest descend encoder_named fit_table fit_with frontier_of gatekeeper
    judge_by_name opinion price_grid roster router_named sentence_of summarise
    """,
    )
)
REJECTED_PHRASES = re.compile(
    r"\b(told apart|by lot|anew|dearer|dearest|learnt|neighbours?|summarise[ds]?|factorisation)\b",
    re.IGNORECASE,
)
# Pages made from stored results, which keep the words of their day.
MEASURED = {"reproduction.md", "quality.md", "speed.md", "compare.md"}


def tokens(path: Path) -> list[tokenize.TokenInfo]:
    return list(tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline))


@pytest.mark.parametrize(
    "path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE))
)
def test_no_rejected_identifier_and_no_rejected_phrase_in_code(path: Path) -> None:
    found = tokens(path)
    assert {
        token.string for token in found if token.type == tokenize.NAME
    } & REJECTED_NAMES == set()
    prose = [token.string for token in found if token.type in (tokenize.STRING, tokenize.COMMENT)]
    assert [match[0] for text in prose for match in REJECTED_PHRASES.finditer(text)] == []


@pytest.mark.parametrize(
    "path",
    [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_no_rejected_phrase_on_a_page(path: Path) -> None:
    if path.name not in MEASURED:
        assert [
            match[0] for match in REJECTED_PHRASES.finditer(path.read_text(encoding="utf-8"))
        ] == []


def glossary_names() -> list[str]:
    table = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    return re.findall(r"^\| [^|]+ \| `(mildroute[\w.]+)` \|$", table, re.MULTILINE)


@pytest.mark.parametrize("name", glossary_names())
def test_a_concept_of_the_glossary_has_that_name_in_the_code(name: str) -> None:
    assert callable(pkgutil.resolve_name(name)) or name.rpartition(".")[0].endswith("Config")


def test_one_class_has_one_name_and_one_name_one_class() -> None:
    """Two public classes of one name would be two concepts; private ones may repeat."""
    defined: dict[str, list[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for found in re.findall(
            r"^class ([A-Z]\w*)", path.read_text(encoding="utf-8"), re.MULTILINE
        ):
            defined.setdefault(found, []).append(str(path.relative_to(SOURCE)))
    assert {name: places for name, places in defined.items() if len(places) > 1} == {}


def test_the_check_itself_notices_what_is_rejected() -> None:
    assert REJECTED_PHRASES.search("the keys are read anew")
    assert "Brain" in REJECTED_NAMES
