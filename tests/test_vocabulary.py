"""Names and prose use the field's words: what was renamed does not come back."""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "mildroute"
REJECTED_NAMES = frozenset(
    re.findall(
        r"\w+",
        """
    Answering Archive Asked Asker Assessment Assignment Brain Breaker BreakerRules Caller Closing Collected ComplaintError
    Contestant Conversations Course DearestRouter Deciding Delivery Door EncoderRules Entrance Experience FactorisationRouter
    FailoverRules Fitted Front Gatekeeper Gauges GoneError Guard Hall Holder Journal KeyRing KnnRouter LdamRouter LineFiles
    LinearLossRouter LinearPlan LogRules Logged LoggedCosts LossRouter LostError Makers Minded MlpRegressionRouter NetworkPlan
    Noted Observed Opinion Outlay Outlook PaperMildRouter Parts Patience People PolicyRules Promise Purse Questioning Quiet
    Recorded Recorder Refusal Remains Renewal Replicates Roster Scored SmallDoors Spans Standing TdefRouter Team Telemetry Teller
    Thinking Throttle Tidied TimeLimit Trained Treasury VectorQueue Wire assemble assess brain caller complain dearest descend
    encoder_named fit_table fit_with frontier_of gatekeeper judge_by_name opinion price_grid roster router_named sentence_of
    summarise
    """,
    )
)
"""Identifiers of an earlier vocabulary: metaphors, British spelling, bare participles."""
REJECTED_PHRASES = re.compile(r"\b(told apart|by lot|anew|dearer|dearest|learnt|neighbours?|summarise[ds]?|factorisation)\b", re.IGNORECASE)
MEASURED = {"reproduction.md", "quality.md", "speed.md", "compare.md"}
"""Pages made from stored results, which keep the words of their day."""


def tokens(path: Path) -> list[tokenize.TokenInfo]:
    return list(tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline))


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_rejected_identifier_and_no_rejected_phrase_in_code(path: Path) -> None:
    found = tokens(path)
    assert {token.string for token in found if token.type == tokenize.NAME} & REJECTED_NAMES == set()
    prose = [token.string for token in found if token.type in (tokenize.STRING, tokenize.COMMENT)]
    assert [match[0] for text in prose for match in REJECTED_PHRASES.finditer(text)] == []


@pytest.mark.parametrize("path", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_rejected_phrase_on_a_page(path: Path) -> None:
    if path.name not in MEASURED:
        assert [match[0] for match in REJECTED_PHRASES.finditer(path.read_text(encoding="utf-8"))] == []


def test_the_check_itself_notices_what_is_rejected() -> None:
    assert REJECTED_PHRASES.search("the keys are read anew")
    assert "Brain" in REJECTED_NAMES
