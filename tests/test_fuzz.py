"""A few thousand of the replies and files that `tests/fuzz.py` makes by the hundred thousand."""

import pytest

from tests.fuzz import fuzz_checkpoints, fuzz_replies, fuzz_rows, grown


@pytest.mark.slow
def test_replies():
    counts = fuzz_replies(3000, seed=7)
    assert all(counts[name] > 0 for name in counts)
    assert grown(fuzz_replies, 1000) < 50_000


@pytest.mark.slow
def test_checkpoints():
    counts = fuzz_checkpoints(2000, seed=7)
    assert counts["refused"] > 1000
    assert grown(fuzz_checkpoints, 500) < 50_000


@pytest.mark.timeout(120)
def test_rows():
    counts = fuzz_rows(2000, seed=7)
    assert counts["refused"] > 1000
    assert counts["whole"] > 0
