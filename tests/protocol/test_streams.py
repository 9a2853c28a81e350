"""Every draw of a run is a function of the seed and of what it is for: old runs can be replayed."""

import numpy as np
import pytest

from danl.protocol.streams import stream


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32 - 1, 2**32, 2**70])
@pytest.mark.parametrize("key", [(3, 5), (0,), (1, 2, 3), (5, 0, 2**32 - 1), (4, 2**32), (2, 7, 2**40)])
def test_a_stream_is_that_of_its_seed_sequence(seed, key):
    documented = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
    np.testing.assert_array_equal(stream(seed, *key).random(5), documented.random(5))
