import numpy as np
import pytest

from danl.reproduce.claims.measures import Repeated, exchanges_to, falling_line, hessians_to, majority, score
from danl.reproduce.runs import MILD, RunSpec
from tests.reproduce.made_up import Course, stored

RUN = RunSpec("a1a", MILD, "danl", "coverage:psi=3")


def test_the_score_is_the_mean_of_log_gaps_after_phase_one_to_exchange_100():
    made = stored(RUN, Course(rate=0.1, start=1e3, phase_one=1e-2, peak=1e-2))
    assert score(made) == pytest.approx((-2 + sum(-2 - 0.1 * t for t in range(99))) / 100)


def test_a_diverged_run_counts_as_gone_after_its_end():
    made = stored(RUN, Course(rate=-1.0, peak=1e3))
    assert made.status == "diverged"
    assert score(made) == pytest.approx((-2 + 3 + 4 + 5 + 96 * 6) / 100)


def test_exchanges_count_until_a_gap_is_reached_for_good():
    made = stored(RUN, Course(rate=1.0, start=1e-1, phase_one=1e-9, peak=1e-2))
    assert exchanges_to(made, 2e-9) == 2 + 7
    assert exchanges_to(made, 1.0) == 0
    assert exchanges_to(stored(RUN, Course(rate=0.0)), 1e-2) == np.inf
    assert hessians_to(stored(RUN, Course(rate=1.0, hessians=3)), 1e-4) == 3
    assert hessians_to(stored(RUN, Course(rate=0.0)), 1e-4) == np.inf


def test_a_line_from_the_peak_to_the_floor():
    line = falling_line(stored(RUN, Course(rate=0.25, peak=1.0)))
    assert line.slope == pytest.approx(-0.25)
    assert line.r_squared == pytest.approx(1.0)
    assert line.end == 1e-12
    rising = falling_line(stored(RUN, Course(rate=-0.05, peak=1e2)))
    assert np.isnan([rising.slope, rising.r_squared]).all()  # its peak is its end: there is nothing to fit
    assert rising.end == pytest.approx(1e6)


def test_medians_over_seeds():
    repeated = Repeated.of([stored(RUN, Course(rate, peak=1e-1)) for rate in (0.1, 0.2, -0.1)])
    assert repeated.end == pytest.approx(10 ** (-1 - 0.1 * 99))
    assert repeated.start == pytest.approx(1e-1)
    assert repeated.converging == [True, True, False]
    assert repeated.improves


def test_most_is_more_than_half():
    assert majority([True, True, False])
    assert not majority([True, False])
