"""Names and prose use the field's words: what was renamed does not come back."""

from __future__ import annotations

import io
import pkgutil
import re
import tokenize
from pathlib import Path
from statistics import median

import pytest

from tests.support.pages import MARKUP, ROOT, markdown_pages, n_words, prose_of, sentences_of

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
# Idioms for which technical English has a fixed word, and what to write instead.
REJECTED_PHRASES = {
    r"(?:told|tells?|telling) (?:\w+ )?apart": "(not) significantly different; distinguish",
    r"(?:drawn )?by lot|the lots?": "at random",
    r"anew|afresh|once more": "again",
    r"dear(?:er|est)": "(more, most) expensive",
    r"whoever|nobody|somebody|everybody|everyone": "the component: the gateway, no client",
    r"besides": "in addition to, as well",
    r"but for": "except for, up to",
    r"for want of": "for lack of",
    r"such as JSON can hold": "JSON-serializable",
    r"in vain": "for nothing",
    r"(?:no|some|has|have|is) room": "space, slack, limit",
    r"under way": "in flight, in progress",
    r"come again": "retry",
    r"come by": "obtain",
    r"go(?:es)? on": "continue, resume",
    r"mend(?:s|ed|ing)?": "fix",
    r"br(?:oken|eaks?|oke) off": "interrupted, fails mid-stream",
    r"lets? in": "admit, accept",
    r"shall": "will, is to",
    r"seldom": "rarely",
    r"beforehand": "in advance",
    r"worth having": "useful",
    r"at the least": "at least, lowest",
    r"what is odd|odd tables": "column mapping",
    r"learnt|spelt|grey|towards|neighbours?|summarise[ds]?|factorisation": "American spelling",
    r"(?:regular|penal|normal|minim|maxim|vector|general|optim|random|initial|serial|recogn|token)"
    r"is(?:e[ds]?|ers?|ing|ations?)": "American spelling",
    r"colours?|behaviours?|cent(?:re|red)|judgement|catalogue|whilst|amongst": "American spelling",
}
# On pages alone: code has variables and tests of its own for these.
REJECTED_ON_PAGES = {
    r"whom": "which expert, which client",
    r"(?:is|are|was|were|and) said": "reported, printed",
    r"(?:is|are|was|were) told": "reported; receives",
    r"by itself|by themselves": "automatically, alone, separately",
}
BARE_DECIMAL = re.compile(r"(?<![\w.\])\\}/-])-?\.\d")
# Headings are nouns that people search for; only the FAQ asks.
RIDDLE = re.compile(
    r"^(?:What|Where|Who|Whom|Whose|Why|That|If|And|But|Or)\b|\?$"
    r"|, (?:without|where|which|when|who|and when|and what|if|as)\b"
)
HEADINGS_ALLOWED = {
    "Why route, and when not to route",
    "Why equal margins are in the grid",
    "What the largest score does choose",
}
# Pages written from stored results keep the words of their day.
MEASURED = {"quality.md", "speed.md"}
MEDIAN_WORDS = 18
PAGES = [page for page in markdown_pages() if page.name not in {*MEASURED, "CHANGELOG.md"}]
PROGRAMS = [*SOURCE.rglob("*.py"), *(ROOT / "examples" / "gallery").glob("*.py")]
WORDS_OF_OTHERS = re.compile(r"``?[^`\n]+``?|https?://\S+")


def rejected(text: str, phrases: dict[str, str]) -> list[str]:
    """Phrases of a text that are rejected, each with what to write instead; code is not read."""
    plain = " ".join(WORDS_OF_OTHERS.sub(" code ", text).split())
    return [
        f"{found[0]!r}: write {instead!r}"
        for phrase, instead in phrases.items()
        for found in re.finditer(rf"\b(?:{phrase})\b", plain, flags=re.IGNORECASE)
    ]


def tokens(path: Path) -> list[tokenize.TokenInfo]:
    return list(tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline))


def prose_of_program(path: Path) -> str:
    """Docstrings, messages, help and comments; patterns that judges search for are none."""
    found = [
        token
        for token in tokens(path)
        if token.type not in (tokenize.NL, tokenize.NEWLINE)
        and not re.match(r"[rR]\w?[\"']", token.string)
    ]
    parts = []
    before = 0
    for token in found:
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            # Python joins neighboring literals, and so a phrase may go over their border.
            parts.append("" if token.type == before == tokenize.STRING else "\n")
            parts.append(re.sub(r"^\w*[\"']+|[\"']+$|^#", "", token.string))
        before = token.type
    return "".join(parts)


@pytest.mark.parametrize("path", sorted(PROGRAMS), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_rejected_identifier_and_no_rejected_phrase_in_code(path: Path) -> None:
    names = {token.string for token in tokens(path) if token.type == tokenize.NAME}
    assert names & REJECTED_NAMES == set()
    prose = prose_of_program(path)
    assert rejected(prose, REJECTED_PHRASES) == []
    comments = [token.string for token in tokens(path) if token.type == tokenize.COMMENT]
    assert BARE_DECIMAL.findall(" ".join(comments)) == [], "write 0.95"


@pytest.mark.parametrize("path", sorted(PAGES), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_rejected_phrase_and_no_riddle_on_a_page(path: Path) -> None:
    text = prose_of(path.read_text(encoding="utf-8"))
    assert rejected(text, REJECTED_PHRASES | REJECTED_ON_PAGES) == []
    plain = re.sub(r"(?<!\\)\$[^$]+\$", " ", MARKUP.sub(" ", WORDS_OF_OTHERS.sub(" ", text)))
    assert BARE_DECIMAL.findall(plain) == [], "write 0.95"
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    riddles = [title for title in headings if RIDDLE.search(title)]
    assert path.name == "faq.md" or set(riddles) <= HEADINGS_ALLOWED


def test_sentences_are_short(capsys: pytest.CaptureFixture[str]) -> None:
    """The median of each page that has sentences enough for one, and of all together."""
    lengths = {
        str(page.relative_to(ROOT)): [
            n_words(each) for each in sentences_of(page.read_text(encoding="utf-8"))
        ]
        for page in PAGES
    }
    medians = {page: median(found) for page, found in lengths.items() if len(found) >= 5}
    overall = median(length for found in lengths.values() for length in found)
    with capsys.disabled():
        print(f"\nmedian sentence: {overall:g} words; longest page median {max(medians.values())}")  # noqa: T201
    assert {page: found for page, found in medians.items() if found > MEDIAN_WORDS} == {}


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
    assert rejected("the keys are read\nanew", REJECTED_PHRASES) == ["'anew': write 'again'"]
    assert rejected("Root becomes `nobody`.", REJECTED_PHRASES) == []
    assert RIDDLE.search("Chance, without which nothing is learned")
    assert not RIDDLE.search("Rate limits")
    page = "# Title\n\nOne two three. Four `five six` seven!\n\n| a | b |\n\n- Eight nine ten."
    assert [n_words(each) for each in sentences_of(page)] == [3, 3, 3]
    assert "Brain" in REJECTED_NAMES
