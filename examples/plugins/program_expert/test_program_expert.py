"""A program that can add, one that fails, one that is too slow, and one that is not there."""

import asyncio
import sys

import pytest
from mildroute.exceptions import ArgumentError
from mildroute.experts import Answer, Expert, Query
from mildroute_plugin_program_expert import Program

ADDS = [sys.executable, "-c", "print(sum(map(int, input().split('+'))))"]


def asked(text: str, **settings: object) -> Answer:
    program = Program({"name": "adder", "command": ADDS, **settings})
    assert isinstance(program, Expert)
    (answer,) = asyncio.run(program.answer([Query("q1", text)]))
    return answer


def test_the_output_is_the_answer() -> None:
    answer = asked("2 + 40", price={"per_answer": 0.001})
    assert (answer.text, answer.dollars, answer.error) == ("42", 0.001, "")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"command": [sys.executable, "-c", "exit(3)"]}, "status 3"),
        (
            {"command": [sys.executable, "-c", "import time; time.sleep(60)"], "seconds": 0.2},
            "timed out after 0.2 seconds",
        ),
        ({"command": ["/no/such/program"]}, "FileNotFoundError"),
    ],
)
def test_a_program_that_fails_is_an_answer_with_an_error(
    settings: dict[str, object], words: str
) -> None:
    answer = asked("2 + 2", **settings)
    assert answer.text is None
    assert words in answer.error


def test_the_cap_on_dollars_knows_what_a_query_costs() -> None:
    assert (
        Program({"name": "a", "command": ["bc"], "price": {"per_answer": 0.5}}).max_cost(
            Query("q1", "2 + 2")
        )
        == 0.5
    )


def test_the_version_follows_what_changes_answers() -> None:
    first, same, other = (
        Program({"name": "a", "command": ["bc", word]}).version for word in ("-l", "-l", "-q")
    )
    assert first == same != other


def test_a_program_without_a_command_is_refused() -> None:
    with pytest.raises(ArgumentError, match="must be a list of words"):
        Program({"name": "a", "command": "bc -l"})
