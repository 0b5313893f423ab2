"""experts.yaml: what is right is read, what is wrong is refused with file and line."""

from __future__ import annotations

import pickle
import time
from pathlib import Path

import pytest

from mildroute.costs.prices import Price
from mildroute.exceptions import ArgumentError
from mildroute.experts.config import ExpertFile, build_expert, read_experts

EXAMPLE = Path(__file__).parents[2] / "examples" / "experts.yaml"
SMALL = """\
prices_date: 2026-11-01
experts:
  small:
    kind: openai
    base_url: http://127.0.0.1:8080/v1
    model: smollm2
"""


def read(folder: Path, text: str | bytes) -> ExpertFile:
    path = folder / "experts.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_experts(path)


def refusal(folder: Path, text: str | bytes) -> str:
    with pytest.raises(ArgumentError) as caught:
        read(folder, text)
    assert len(str(caught.value)) < 600
    assert "\n" not in str(caught.value)
    return str(caught.value)


def complaint(folder: Path, text: str) -> str:
    try:
        read(folder, text)
    except ArgumentError as error:
        return str(error)
    return ""


def test_the_example_is_read() -> None:
    found = read_experts(EXAMPLE)
    assert [(spec.name, spec.kind) for spec in found.experts] == [
        ("small", "openai"), ("large", "openai"), ("base", "openai"),
        ("rules", "classifier"), ("crowd", "people"), ("old", "recorded"),
    ]  # fmt: skip
    assert found.prices is not None
    assert found.prices.prices == {"small": Price(0.05, 0.1), "large": Price(2.5, 10.0)}
    assert (found.prices.date, found.prices.source) == ("2026-11-01", "experts.yaml")
    assert found.expert("crowd").per_answer == 0.08
    lines = EXAMPLE.read_text().splitlines()
    assert all(lines[spec.line - 1] == f"  {spec.name}:" for spec in found.experts)


def test_settings_are_kept_as_they_were_written_and_can_be_sent_elsewhere(tmp_path: Path) -> None:
    spec = read(
        tmp_path,
        SMALL
        + "    context: 8192\n    capabilities: [tools, json]\n    request: {top_p: 1e-1, seed:"
        " 0x10}\n",
    ).experts[0]
    assert spec.settings["capabilities"] == ["tools", "json"]
    assert spec.settings["request"] == {"top_p": 0.1, "seed": 16}
    assert pickle.loads(pickle.dumps(spec)) == spec  # noqa: S301
    assert (spec.price, spec.per_answer, spec.where) == (None, None, "experts.yaml:3")


def test_an_anchor_may_be_used_again(tmp_path: Path) -> None:
    text = "experts:\n  a: {kind: people, field: &f label}\n  b: {kind: people, field: *f}\n"
    assert [spec.settings["field"] for spec in read(tmp_path, text).experts] == ["label", "label"]


def test_nothing_of_the_environment_is_put_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME_MODEL", "leaked")
    for written in ("${HOME_MODEL}", "$HOME_MODEL", "%HOME_MODEL%", "${oc.env:HOME_MODEL}"):
        assert (
            read(tmp_path, SMALL.replace("smollm2", f'"{written}"')).experts[0].settings["model"]
            == written
        )


# what is changed in or added to the sound file above, the line, and what is said
REFUSED: list[tuple[str, int, str]] = [
    ("    modle: x\n", 7, "experts.small.modle is not a setting; did you mean 'model'?"),
    ("    zzz: x\n", 7, "experts.small.zzz is not a setting; Known: api_key_env, base_url"),
    ("    model: again\n", 7, "duplicate key 'model', first in line 6"),
    ("  small:\n    kind: people\n", 7, "duplicate key 'small', first in line 3"),
    ("  other:\n", 7, "experts.other: it must be a mapping with the key kind: anthropic"),
    (
        "  other: {field: x}\n",
        7,
        "experts.other: it must be a mapping with the key kind: anthropic",
    ),
    ("  other: {kind: peple}\n", 7, "unknown kind 'peple'; did you mean 'people'?"),
    ("  other: {kind: [people]}\n", 7, "experts.other.kind must be text, got a list"),
    ("  other: {kind: people}\n", 7, "experts.other needs field; add it"),
    ("  other:\n    kind: openai\n    model: x\n", 7, "experts.other needs base_url; add it"),
    ("  ' other': {kind: people, field: x}\n", 7, "names of experts"),
    ("  7: {kind: people, field: x}\n", 7, "keys must be text, got '7'; put it in quotes"),
    ("    concurrency: 0\n", 7, "experts.small.concurrency must be more than 0, got 0"),
    ("    concurrency: yes\n", 7, "experts.small.concurrency must be a whole number, got True"),
    ("    concurrency: '8'\n", 7, "got '8'"),
    ("    timeout: -1\n", 7, "experts.small.timeout must be more than 0, got -1"),
    ("    timeout: .inf\n", 7, "got inf"),
    (
        "    timeout:\n      total: 60\n      conect: 5\n",
        9,
        "experts.small.timeout.conect is not a setting; did you mean 'connect'? Known: connect,",
    ),
    (
        "    timeout:\n      total: 60\n      connect: 0\n",
        9,
        "experts.small.timeout.connect must be more than 0, got 0",
    ),
    ("    retries: 1.5\n", 7, "experts.small.retries must be a whole number, got 1.5"),
    ("    context: -5\n", 7, "context must be"),
    ("    capabilities: tools\n", 7, "experts.small.capabilities must be a list, got 'tools'"),
    (
        "    capabilities: [tols]\n",
        7,
        "capabilities[0] must be one of 'json', 'tools' or 'vision', got 'tols'",
    ),
    ("    price: cheap\n", 7, "a price in dollars per million tokens must be a finite number"),
    ("    price: -1\n", 7, "experts.small.price must be at least 0, got -1"),
    ("    price: true\n", 7, "got True"),
    ("    price: {input: 1}\n", 7, "experts.small.price needs output; add it"),
    (
        "    price: {input: 1, outptu: 2}\n",
        7,
        "experts.small.price.outptu is not a setting; did you mean 'output'? Known: cache_write,"
        " cached_input, input, output.",
    ),
    (
        "    price: {input: 1, output: .nan}\n",
        7,
        "experts.small.price.output must be a finite number, got nan",
    ),
    ("    price: {per_answer: 1}\n", 7, "this kind is paid by the token"),
    ("  other: {kind: people, field: x, price: 1}\n", 7, "this kind is paid by the answer"),
    (
        "  other: {kind: people, field: x, price: {per_answer: -1}}\n",
        7,
        "experts.other.price.per_answer must be at least 0, got -1",
    ),
    (
        "  other: {kind: people, field: x, votes: most}\n",
        7,
        "experts.other.votes must be one of 'majority' or 'single', got 'most'",
    ),
    (
        "  other: {kind: classifier, import: os.system}\n",
        7,
        "an import path must be written as package.module:name",
    ),
    ("  other: {kind: classifier, import: 'a:b', batch_size: 0}\n", 7, "batch_size must be"),
    (
        "  other: {kind: recorded, path: ''}\n",
        7,
        "experts.other.path must be text that is not empty, got ''",
    ),
    ("    prompt: '{input}'\n", 7, "experts.small.prompt must be a mapping, got '{input}'"),
    ("    prompt:\n      system: x\n      user: '{inp'\n", 9, "for literal braces, write"),
    ("    prompt:\n      system: 7\n", 8, "prompt.system must be text, got 7; put it in quotes"),
    (
        "    prompt:\n      usr: x\n",
        8,
        "experts.small.prompt.usr is not a setting; did you mean 'user'?",
    ),
    ("    prompt:\n      raw: x\n      system: y\n", 7, "a raw prompt is the whole prompt"),
    ("    prompt:\n      examples:\n        - {input: x}\n", 7, "example 1 of a prompt"),
    ("    request: 7\n", 7, "request must be a mapping"),
    ("    request: {stream: true}\n", 7, "request must not contain 'stream'"),
    ("    request: {max_tokens: '64'}\n", 7, "max_tokens must be a whole number"),
    ("    request: {temperature: .nan}\n", 7, "JSON-serializable"),
    ("    version: 7\n", 7, "experts.small.version must be text, got 7; put it in quotes"),
    ("    api_key_env: my-key\n", 7, "a key must be given as the name of"),
    ("experts: {}\n", 7, "duplicate key 'experts', first in line 2"),
    ("expert:\n", 7, "expert is not a setting; did you mean 'experts'?"),
    ("    version: [1, 2\n", 8, "not valid YAML: expected ',' or ']'"),
    ("    version: @x\n", 7, "not valid YAML: found character '@'"),
    ("\tversion: x\n", 7, "not valid YAML"),
    ("    version: *nobody\n", 7, "not valid YAML: found undefined alias 'nobody'"),
    ("---\nexperts: {}\n", 7, "not valid YAML: but found another document"),
    (
        "    version: !!python/object/apply:os.system ['true']\n",
        7,
        "python/object/apply:os.system' are not supported",
    ),
    ('    version: "\\UFFFFFFFF"\n', 7, "an escape that names no character"),
    ('    version: "\\U00110000"\n', 7, "an escape that names no character"),
    ("    version: !secret x\n", 7, "tags such as '!secret' are not supported"),
    ("    version: !!binary aGk=\n", 7, "are not supported"),
    ("    version: !!int abc\n", 7, "'abc' is not of the type int"),
    ("    request: !!set {a, b}\n", 7, "are not supported"),
    ("    <<: {model: x}\n", 7, "merge keys (<<) are not supported"),
    ("    request: &a {b: *a}\n", 7, "aliases must not contain themselves"),
    ("    headers: {Host: elsewhere}\n", 7, "headers must not contain 'Host'"),
    ("    headers: [a]\n", 7, "headers must be a mapping"),
    (
        "    api_key_env: KEY\n    headers: {Authorization: {env: OTHER}}\n",
        3,
        "'Authorization' together with api_key_env",
    ),
    ("    query: {a: [1]}\n", 7, "query must contain strings or whole numbers, got list under 'a'"),
]


@pytest.mark.parametrize(("added", "line", "said"), REFUSED)
def test_what_is_wrong_is_refused_with_file_and_line(
    added: str, line: int, said: str, tmp_path: Path
) -> None:
    message = refusal(tmp_path, SMALL + added)
    assert message.startswith(f"experts.yaml:{line}: ")
    assert said in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "experts.yaml:1: the file needs experts; add it"),
        ("- a\n", "experts.yaml:1: the file must be a mapping, got a list"),
        ("prices_date: 2026-11-01\n", "experts.yaml:1: the file needs experts; add it"),
        ("experts:\n", "experts.yaml:1: experts: it must name at least one expert"),
        ("experts: {}\n", "experts.yaml:1: experts: it must name at least one expert"),
        ("\nexperts: [a]\n", "experts.yaml:2: experts: it must name at least one expert"),
        (
            "prices_date: 7\nexperts: {a: {kind: people, field: x}}\n",
            "experts.yaml:1: prices_date must be text, got 7",
        ),
        (b"a: b\n\xff\n", "experts.yaml:2: the file must be UTF-8 text"),
        ("a: b\n\x00\n", "experts.yaml:2: a character that YAML does not allow, number 0"),
        ("a: " + "[" * 10_000, "experts.yaml:1: brackets or indents are nested too deeply"),
        ("a: " + "x" * 600_000, "experts.yaml must be at most 524,288 bytes"),
    ],
)
def test_files_of_another_kind_are_refused(text: str | bytes, said: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, text).startswith(said)


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    assert read(tmp_path, b"\xef\xbb\xbf" + SMALL.encode()).experts[0].name == "small"


def test_aliases_that_blow_up_are_refused_at_once(tmp_path: Path) -> None:
    bomb = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    bomb += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 10)]
    started = time.perf_counter()
    assert "more than 20,000 values" in refusal(tmp_path, "\n".join(bomb) + "\n" + SMALL)
    assert time.perf_counter() - started < 30


SECRET = "sk-proj-abcdefghij0123456789"  # noqa: S105


@pytest.mark.parametrize(
    ("added", "line"),
    [
        ("    api_key: hunter2hunter2\n", 7),
        ("    API-Key: hunter2hunter2\n", 7),
        ("    apikey: 1234567\n", 7),
        ("    token: hunter2hunter2\n", 7),
        ("    headers: {api-key: hunter2hunter2}\n", 7),
        ("    headers: {x-api-key: hunter2hunter2}\n", 7),
        ("    password: hunter2hunter2\n", 7),
        ("    request:\n      authorization: hunter2hunter2\n", 8),
        (f"    api_key_env: {SECRET}\n", 7),
        ("    api_key_env: hunter2hunter2\n", 7),
        (f"    request: {{user: {SECRET}}}\n", 7),
        (f"    prompt:\n      system: |\n        use\n        {SECRET}\n", 8),
        ("    version: hf_abcdefghijklmnopqrst\n", 7),
        ("    version: Bearer hunter2hunter2\n", 7),
        ("    version: AIza" + "a1" * 16 + "\n", 7),
        (f"    {SECRET}: x\n", 7),
        (f"  {SECRET}: {{kind: people, field: x}}\n", 7),
    ],
)
def test_a_key_in_the_file_is_refused_with_the_way_out_and_not_shown(
    added: str, line: int, tmp_path: Path
) -> None:
    message = refusal(tmp_path, SMALL + added)
    assert message.startswith(f"experts.yaml:{line}: ")
    assert "export" in message
    assert "hunter2" not in message
    assert SECRET not in message


@pytest.mark.parametrize(
    "words",
    [
        "The token: is a word.",
        "sk-learn is a library",
        "task-oriented-programming-2024-edition",
        "a risk-2 note",
    ],
)
def test_words_that_only_look_a_little_like_keys_are_read(words: str, tmp_path: Path) -> None:
    assert (
        read(tmp_path, SMALL + f"    prompt: {{system: '{words}'}}\n")
        .experts[0]
        .settings["prompt"]["system"]
        == words
    )


def test_an_unknown_expert_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="has no expert 'smal'; did you mean 'small'"):
        read(tmp_path, SMALL).expert("smal")


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.yaml"):
        with pytest.raises(ArgumentError, match="cannot be read"):
            read_experts(path)


def test_every_cut_of_the_example_is_read_or_refused_with_a_line(tmp_path: Path) -> None:
    text = EXAMPLE.read_text()
    said = [complaint(tmp_path, text[:end]) for end in range(0, len(text), 97)]
    assert all(message.startswith("experts.yaml:") for message in said if message)
    assert "" in said


def test_log_probabilities_are_for_models_behind_an_address(tmp_path: Path) -> None:
    spec = read(tmp_path, SMALL + "    logprobs: true\n").experts[0]
    assert build_expert(spec).model.logprobs  # type: ignore[attr-defined]
    people = "experts:\n  a: {kind: people, field: label, logprobs: true}\n"
    assert "logprobs is not a setting" in refusal(tmp_path, people)
    assert "logprobs" in refusal(tmp_path, SMALL + "    logprobs: 5\n")
