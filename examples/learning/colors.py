"""Questions about colors, and their answers."""

from __future__ import annotations

import itertools
import random
import re

# Those that the classifier has learned well, and the others.
LEARNED = ("red", "blue", "green", "black")
OTHERS = ("white", "brown")
_THINGS = ("car", "hat", "coat", "house", "bike", "bag", "door", "shoe", "cup", "lamp")
_PEOPLE = ("Ann", "Tom", "Eva", "Max", "Ida", "Ben", "Zoe", "Leo", "Amy", "Jim", "Sue", "Bob")


def questions(seed: int = 0) -> list[str]:
    """All questions, in random order."""
    found = [
        f"{owner} has a {color} {thing} from {giver}. The {thing} is"
        for owner, giver in itertools.permutations(_PEOPLE, 2)
        for color in LEARNED + OTHERS
        for thing in _THINGS
    ]
    random.Random(seed).shuffle(found)
    return found


def right_answer(question: str) -> str:
    """The color that a question is about."""
    found = re.search(r"has a (\w+) ", question)
    return found[1] if found else ""
