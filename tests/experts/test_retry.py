from __future__ import annotations

from typing import Any

import pytest

from mildroute.exceptions import ArgumentError
from mildroute.experts.retry import Backoff, retry_after
from mildroute.experts.settings import CallSettings, Timeouts


def test_the_longest_wait_doubles_up_to_a_cap_and_chance_picks_below_it() -> None:
    backoff = Backoff(first=0.5, longest=3.0)
    assert [backoff.wait(failures, jitter=1.0) for failures in (1, 2, 3, 4, 5)] == [
        0.5,
        1.0,
        2.0,
        3.0,
        3.0,
    ]
    assert backoff.wait(3, jitter=0.0) == 0.0
    assert Backoff().wait(10**9, jitter=1.0) == 60.0


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None), ("", None), ("soon", None), ("nan", None), ("inf", None), ("1e400", None),
        ("-3", 0.0), ("0", 0.0), (" 5 ", 5.0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 40.0), ("Thu, 01 Jan 1970 00:00:40 GMT", 0.0),
        ("Thu, 01 Jan 99999 00:00:40 GMT", None), ("Thu, 01 Jan 1970 00:01:40 +0000", 40.0),
    ],
)  # fmt: skip
def test_retry_after_is_seconds_or_a_date(header: str | None, seconds: float | None) -> None:
    assert retry_after(header, 60.0) == seconds


@pytest.mark.parametrize(
    "make",
    [
        lambda: Backoff(retries=-1), lambda: Backoff(retries=1.5), lambda: Backoff(retries=True),
        lambda: Backoff(patience=float("nan")), lambda: Backoff(longest=-1),
        lambda: Backoff(first="1"), lambda: Timeouts(0), lambda: Timeouts(connect=float("inf")),
        lambda: Timeouts(read=-1), lambda: CallSettings(concurrency=0),
        lambda: CallSettings(largest=0.5),
    ],
)  # fmt: skip
def test_numbers_that_make_no_sense_are_refused(make: Any) -> None:
    with pytest.raises(ArgumentError, match="must be a"):
        make()
