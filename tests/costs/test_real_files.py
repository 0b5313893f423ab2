from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from mildroute.costs.summary import describe
from mildroute.costs.table import CostTable

SHAPES = {
    "mmlu57": (13_659, 14),
    "mmlu_pro": (11_804, 46),
    "routerdc7": (20_565, 7),
    "routerbench_subset": (3_148, 11),
    "gsm8k9": (1_319, 9),
}

pytestmark = pytest.mark.skipif(
    "MILDROUTE_DATA" not in os.environ,
    reason="set MILDROUTE_DATA to the folder of the benchmark data",
)


@pytest.mark.parametrize("name", SHAPES)
def test_every_routing_file_reads_summarises_and_splits(name: str) -> None:
    path = Path(os.environ["MILDROUTE_DATA"], f"{name}.parquet")
    table = CostTable.read(path)
    assert (table.rows, len(table.experts)) == SHAPES[name]
    assert table.repairs == ()
    summary = describe(path)
    assert summary.content_hash == table.content_hash
    assert summary.oracle_score == pytest.approx(table.scores.max(axis=1).mean())
    np.testing.assert_allclose(
        [expert.score for expert in summary.experts], table.scores.mean(axis=0)
    )
    train, test = table.split(0.2)
    assert len(test) == round(0.2 * table.rows)
    assert not set(train.inputs or []) & set(test.inputs or [])
