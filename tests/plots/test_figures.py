import numpy as np
import pytest

import danl
from danl.run.history import History
from tests.problems import random_problem


def test_a_figure_is_written_whole(tmp_path):
    problem = random_problem()
    reference = danl.reference_optimum(problem)
    runs = {
        name: danl.solve(problem, method=name, reference=reference, max_rounds=20).history
        for name in ("gd", "newton", "newton-zero")
    }
    from matplotlib.image import imread

    path = danl.plot_histories(runs, tmp_path / "f.png", title="three runs")
    picture = imread(path)
    assert picture.shape[:2] == (660, 1350)
    assert (picture[:, :, :3].std(axis=(0, 1)) > 0.05).all()  # something is drawn, in colour
    assert [entry.name for entry in tmp_path.iterdir()] == ["f.png"]


def test_the_gradient_norm_is_drawn_without_a_reference(tmp_path):
    runs = {"gd": danl.solve(random_problem(), method="gd", max_rounds=3).history}
    svg = danl.plot_histories(runs, tmp_path / "f.svg").read_text()
    assert "gradient norm" in svg
    assert "gap" not in svg


def test_nothing_to_draw(tmp_path):
    with pytest.raises(danl.InputError, match="at least one run"):
        danl.plot_histories({"a": History()}, tmp_path / "f.png")
    assert not np.any(list(tmp_path.iterdir()))
