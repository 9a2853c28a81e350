"""Run by test_sites_loopback.py inside a network of its own: columns by name and places without values, for real."""

import numpy as np
import pytest

import danl
from danl.errors import InputError
from danl.objective.problem import RemoteProblem
from tests.sites import MALFORMED, NAMES, chain, leaks, permuted_files, pooled, write

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]


def references_of(paths):
    return [danl.ShardReference(path=str(path), target_column="ill") for path in paths]


def test_permuted_columns_give_the_pooled_model(tmp_path):
    paths, problem = permuted_files(tmp_path)
    remote = RemoteProblem(references_of(paths), alpha=1e-3, weighting="samples")
    result = danl.solve(remote, engine="flower", tol=1e-11)
    assert result.status == "converged"
    assert np.abs(result.w - pooled(problem)).max() <= 1e-8
    assert result.feature_names == NAMES


def test_a_malformed_file_is_told_by_its_place(tmp_path, capfd):
    paths, _ = permuted_files(tmp_path)
    case = next(case for case in MALFORMED if case.name == "word.csv")
    references = [*references_of(paths[:2]), danl.ShardReference(path=str(write(case, tmp_path)))]
    with pytest.raises(InputError) as raised:
        danl.solve(RemoteProblem(references, alpha=1.0), engine="flower")
    printed = capfd.readouterr()
    assert f"site site-2: {case.says}" in str(raised.value)
    assert leaks(chain(raised.value) + printed.out + printed.err) == []
