"""What holds of every method of the field: names, runs that repeat, absences, and a place on its page."""

from pathlib import Path

import numpy as np
import pytest

import danl
from danl.methods import FIELD, make_method

ROOT = Path(__file__).resolve().parents[2]


def problem(workers=4, rows=120, d=5):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, d))
    y = (rng.random(rows) < 1 / (1 + np.exp(-X @ rng.normal(size=d)))).astype(float)
    return danl.Problem(danl.partition(X, y, workers=workers, seed=0), alpha=1e-2)


@pytest.mark.parametrize("name", FIELD)
def test_it_has_its_name_and_a_place_on_the_page(name):
    assert make_method(name).name == name
    page = (ROOT / "docs" / "field.md").read_text(encoding="utf-8")
    assert f"| `{name}` |" in page


@pytest.mark.parametrize("name", FIELD)
def test_the_objective_falls_and_the_same_seed_gives_the_same_run(name):
    made = problem()
    first, again = (danl.solve(made, method=name, max_rounds=30, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.w, again.w)
    np.testing.assert_array_equal(first.history.column("bytes_up"), again.history.column("bytes_up"))
    assert first.status in ("converged", "max_rounds")
    assert made.objective(first.w) < made.objective(np.zeros(5))
    assert first.history[0].bytes_up > 0


@pytest.mark.parametrize("name", FIELD)
def test_one_by_one_and_through_messages_the_run_is_the_same(name):
    from danl.engines.local import Local

    made = problem()
    runs = [danl.solve(made, method=name, max_rounds=8, engine=Local(batched=batched)) for batched in (True, False)]
    np.testing.assert_allclose(runs[0].w, runs[1].w, rtol=1e-9, atol=1e-10)


def test_masks_of_pruned_models_are_in_the_history():
    result = danl.solve(problem(), method="pruned-sgd", policy="coverage:psi=2", regions=3, max_rounds=6)
    later = [row for row in result.history if row.kind == "pruned-steps"]
    assert later
    assert all(row.coverage == (2, 2, 2) for row in later)


@pytest.mark.parametrize("name", FIELD)
def test_absences_end_nothing(name):
    result = danl.solve(problem(), method=name, max_rounds=25, engine="local:dropout=0.2")
    assert result.status in ("converged", "max_rounds", "quorum_lost")
    assert np.isfinite(result.w).all()


@pytest.mark.parametrize("name", FIELD)
def test_a_claim_of_its_paper_is_tried(name):
    assert (ROOT / "benchmarks" / "rivals" / f"{name.replace('-', '_')}.py").exists()
