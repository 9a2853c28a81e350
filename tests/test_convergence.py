"""The default method reaches the optimum in the settings it has to: the bars of `make bench`, for one seed."""

import pytest
from benchmarks import convergence, convergence_report
from benchmarks.convergence import BLOCKS, DATA, GAP, POLICIES, STARTS, Case, Measured, failure, measure

BLOCK = {block.name: block for block in BLOCKS}
FEW = ("full", "coverage:psi=1", "coverage:psi=2,gamma=2", "subset:S=1,order=random")


@pytest.fixture(autouse=True)
def where_the_data_is(request, monkeypatch):
    """Beyond the bundled a1a, only with the files: `data_dir` skips the test and says so."""
    data = request.node.callspec.params.get("data", "a1a") if hasattr(request.node, "callspec") else "a1a"
    if data != "a1a":
        monkeypatch.setenv("DANL_DATA_DIR", str(request.getfixturevalue("data_dir")))


def measured(block, data, policy, start):
    return measure(Case(BLOCK[block], data, policy, start, seed=0))


@pytest.mark.slow
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("data", DATA)
def test_the_papers_setting_takes_at_most_40_exchanges(data, policy, start):
    row = measured("1", data, policy, start)
    assert not failure(row), row
    assert row.exchanges <= 40


@pytest.mark.slow
@pytest.mark.parametrize("block", ["2e", "2f"])
@pytest.mark.parametrize("policy", FEW)
def test_skewed_shards_many_workers_many_regions_take_at_most_60(block, policy):
    row = measured(block, "a1a", policy, "zero")
    assert not failure(row), row
    assert row.exchanges <= 60


@pytest.mark.slow
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("policy", FEW)
def test_absences_cost_at_most_four_times_the_exchanges(policy, start):
    alone, row = (measured(block, "a1a", policy, start) for block in ("1", "3a"))
    assert not failure(row, alone), row


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("policy", FEW)
def test_when_workers_leave_it_goes_to_the_optimum_of_those_that_remain(policy, start):
    row = measured("3b", "a1a", policy, start)  # final_gap is to that optimum
    assert not failure(row), row
    assert row.note == "without workers 2, 7: the objective is that of the 8 workers that are left"


# --- the measuring itself: a bar that cannot be missed is none ---

GOOD = Measured("1", "a1a", "full", "zero", 0, "converged", 40, 9, 1_000_000, 45, 1e-15)


def changed(**values):
    return Measured(**{**convergence.asdict(GOOD), **values})


def test_a_missed_bar_is_said():
    assert failure(GOOD) == ""
    assert failure(changed(exchanges=41)) == "41 exchanges, above 40"
    assert failure(changed(status="max_rounds")) == "ended as max_rounds"
    assert failure(changed(final_gap=2 * GAP)) == "gap 2.0e-10 at the end"
    assert failure(changed(exchanges=None)) == "gap 1.0e-15 at the end"
    assert failure(changed(block="3a", exchanges=161), GOOD) == "161 exchanges, above 4 times 40"
    assert failure(changed(block="3a", exchanges=160), GOOD) == ""
    assert failure(changed(block="3b")) == "says nothing about the workers that left"


def test_rows_and_report(tmp_path):
    rows = [GOOD, changed(exchanges=50, seed=1), changed(block="3a", exchanges=80, note="x")]
    convergence.write_rows(tmp_path / "rows.csv", rows)
    assert convergence.read_rows(tmp_path / "rows.csv") == rows
    missed = convergence.failures(rows)
    assert missed == ["1, a1a, full, zero, 1: 50 exchanges, above 40"]
    report = convergence_report.markdown([convergence.asdict(row) for row in rows], BLOCKS, missed)
    assert "3 runs on a1a; seeds 0, 1; 1 over their bar." in report
    assert "| 1 | the paper's setting | 40 | 2 | 45 / 50 | 9 / 9 | 1.0 MB | 45 | 1 | converged 2 |" in report
    assert "2.0 times at worst" in report
