"""Cells are plain data with a key that changes with everything they say and with nothing else."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from mildroute.exceptions import ArgumentError
from paper.config import SCHEMA, Costs, Data, ExperimentConfig, Experts, Method
from paper.tests.toys import toy_cell

fees = st.floats(0, 2, allow_nan=False)
cells = st.builds(
    ExperimentConfig,
    data=st.builds(
        Data,
        st.sampled_from(["toy", "svhn"]),
        st.lists(st.text(max_size=5), max_size=3).map(tuple),
        st.integers(0, 99),
    ),
    experts=st.just(Experts("synthetic", (0.5, 0.5))),
    costs=st.builds(Costs, st.one_of(st.just(()), st.tuples(fees, fees)), fees),
    method=st.builds(Method, st.text(max_size=9)),
    seed=st.integers(0, 2**31),
)


@given(cells)
def test_json_gives_back_the_same_cell_with_the_same_key(cell: ExperimentConfig) -> None:
    again = ExperimentConfig.from_json(cell.to_json())
    assert again == cell
    assert again.key == cell.key


def test_the_key_is_the_hash_of_the_canonical_json_and_does_not_drift() -> None:
    cell = toy_cell()
    canonical = (
        '{"costs":{"beta":[],"noise":0.0},"data":{"features":"frozen","groups":[],"name":"toy","test":0,"train":150},'
        '"experts":{"coverage":[0.7,0.2,0.1],"kind":"synthetic","names":[]},"method":{"name":"tdef","network":""},"schema":1,"seed":0}'
    )
    assert cell.key == hashlib.sha256(canonical.encode()).hexdigest()


def test_the_key_is_the_same_in_another_process() -> None:
    code = (
        "import sys; from paper.config import ExperimentConfig;"
        " print(ExperimentConfig.from_json(sys.argv[1]).key)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, toy_cell().to_json()],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == toy_cell().key


def test_every_field_changes_the_key() -> None:
    cell = toy_cell()
    changed = [
        replace(cell, seed=1),
        replace(cell, method=Method("ce")),
        replace(cell, method=Method("tdef", "resnet18")),
        replace(cell, costs=Costs(noise=0.2)),
        replace(cell, costs=Costs((0.7, 0.2, 0.1))),
        replace(cell, experts=Experts("real", (0.7, 0.2, 0.1))),
        replace(cell, experts=Experts("synthetic", (0.6, 0.3, 0.1))),
        replace(cell, data=replace(cell.data, train=151)),
        replace(cell, data=replace(cell.data, test=3)),
        replace(cell, data=replace(cell.data, groups=("a",))),
        replace(cell, data=replace(cell.data, features="raw")),
        replace(cell, data=replace(cell.data, name="svhn")),
    ]
    assert len({each.key for each in [cell, *changed]}) == len(changed) + 1


def test_a_cell_of_another_schema_is_refused() -> None:
    text = json.dumps({**json.loads(toy_cell().to_json()), "schema": SCHEMA + 1})
    with pytest.raises(ArgumentError, match="schema 1"):
        ExperimentConfig.from_json(text)


@pytest.mark.parametrize(("kind", "coverage"), [("magic", (0.5, 0.5)), ("real", (0.5, 0.4))])
def test_experts_that_mean_nothing_are_refused(kind: str, coverage: tuple[float, ...]) -> None:
    with pytest.raises(ArgumentError):
        Experts(kind, coverage)


def test_fees_must_fit_the_experts() -> None:
    with pytest.raises(ArgumentError, match="one fee for each of 2"):
        ExperimentConfig(Data("toy"), Experts("synthetic", (0.5, 0.5)), Costs((1.0,)))
