"""Token F1, the score of SQuAD: how many words an answer and a reference share."""

import re
from collections import Counter
from dataclasses import dataclass

from mildroute.experts import Query
from mildroute.judges import Judge, Verdict


def words_of(text: str) -> Counter[str]:
    """Words and how often each occurs, without case, punctuation and articles."""
    words = re.findall(r"\w+", text.casefold())
    return Counter(word for word in words if word not in ("a", "an", "the"))


@dataclass(frozen=True)
class TokenF1(Judge):
    """Settings: `name`, and `least`, a score below which an answer counts as wrong."""

    least: float = 0.0
    name: str = "token-f1"

    @property
    def version(self) -> str:
        """Changes with all that changes scores: raise the number when you change the code."""
        return f"1-{self.least}"

    async def judge(self, query: Query, text: str) -> Verdict:
        """F1 of the words of answer and reference, from 0 to 1."""
        wanted, given = words_of(query.reference or ""), words_of(text)
        if not wanted:
            return Verdict(None, "the query has no reference")
        shared = (wanted & given).total()
        score = 2 * shared / (wanted.total() + given.total())
        return Verdict(score if score >= self.least else 0.0, f"{shared} of {wanted.total()} words")
