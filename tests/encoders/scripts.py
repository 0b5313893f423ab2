"""Texts of scripts with spaces between words, with signs of every kind among them."""

# ruff: noqa: RUF001

from __future__ import annotations

import numpy as np

_SAMPLES = """
What is the capital of France? Don't guess; 2 + 2 = 4, x_1 <= 3.5e-4!
def sort(xs): return [x for x in xs if x > 0]  # naïve, café, Straße, ÅNGSTRÖM
Напишите короткое стихотворение о весне, пожалуйста.
Ποια είναι η πρωτεύουσα της Ελλάδας;
ما هي عاصمة فرنسا؟ اَلْعَرَبِيَّةُ ١٢٣
מהי בירת צרפת? שָׁלוֹם
फ़्रांस की राजधानी क्या है? १२३
বাংলাদেশের রাজধানী কী?
பிரான்சின் தலைநகரம் எது?
프랑스의 수도는 어디입니까? 짧게 대답하세요.
የፈረንሳይ ዋና ከተማ ማን ናት?
საფრანგეთის დედაქალაქი Երևան བོད་ཡིག
🙂 👩‍💻 ½ ² ﬁ Ⅷ £ € ∑ ∈ “quoted” – dash … 　 ， 。 「」 ﻿
"""


def _shuffled(texts: list[str], count: int) -> list[str]:
    """Return texts of random characters of some texts."""
    characters = list("".join(texts) + " " * 60)
    draw = np.random.default_rng(0)
    return ["".join(draw.choice(characters, size=draw.integers(1, 60))) for _ in range(count)]


_LINES = _SAMPLES.strip().split("\n")
SPACED_TEXTS = _LINES + _shuffled(_LINES, 300)
