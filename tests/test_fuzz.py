"""A few thousand of the replies and files that `tests/fuzz.py` makes by the hundred thousand."""

import pytest

from tests.fuzz import fuzz_checkpoints, fuzz_replies, fuzz_rows, grown


@pytest.mark.slow
def test_replies():
    told = fuzz_replies(3000, seed=7)
    assert all(told[name] > 0 for name in told)
    assert grown(fuzz_replies, 1000) < 50_000


@pytest.mark.slow
def test_checkpoints():
    told = fuzz_checkpoints(2000, seed=7)
    assert told["refused"] > 1000
    assert grown(fuzz_checkpoints, 500) < 50_000


@pytest.mark.timeout(120)
def test_rows():
    told = fuzz_rows(2000, seed=7)
    assert told["refused"] > 1000
    assert told["whole"] > 0
