"""Runs of masks without any learning: random settings, and what a policy does in them round by round.

The naive measures here are written from the definitions of the paper, with plain loops over the whole
T x N x Q array, and share nothing with `danl.policies.MaskRecord`.
"""

import numpy as np
from hypothesis import strategies as st

from danl.objective.regions import Regions
from danl.policies import MaskRecord, Profile, ResourceAware, Round, Setting, validated_masks

ROUNDS = 1000


def make_setting(n_workers, sizes, max_rounds=ROUNDS, rows=100, shard_bytes=8000, pruned=False):
    return Setting(
        n_workers=n_workers,
        region_sizes=np.array(sizes),
        rows=np.broadcast_to(rows, n_workers),
        shard_bytes=np.broadcast_to(shard_bytes, n_workers),
        max_rounds=max_rounds,
        pruned=pruned,
    )


@st.composite
def settings(draw, max_rounds=ROUNDS):
    n_workers = draw(st.integers(1, 12))
    sizes = draw(st.lists(st.integers(1, 7), min_size=1, max_size=9))
    rows = draw(st.lists(st.integers(1, 1000), min_size=n_workers, max_size=n_workers))
    shard_bytes = draw(st.lists(st.integers(1, 10**6), min_size=n_workers, max_size=n_workers))
    return make_setting(n_workers, sizes, max_rounds, rows, shard_bytes, draw(st.booleans()))


def naive_seconds(setting, profile, worker, kept):
    d, mask_bytes = sum(setting.region_sizes), (len(setting.region_sizes) + 7) // 8
    margins = kept / d if setting.pruned else 1  # columns that a margin goes through
    way_back = kept / d
    return (
        (8 * d + mask_bytes) / profile.downlink
        + setting.rows[worker] * (margins / 2 + way_back / 2) / profile.rows_per_second
        + (8 * kept + 8 + mask_bytes) / profile.uplink
    )


def naive_memory(setting, worker, kept):
    d = sum(setting.region_sizes)
    held = kept if setting.pruned else d  # of the columns of X and of the model
    return setting.shard_bytes[worker] * held / d + 8 * held + 8 * kept


@st.composite
def resource_aware(draw, setting):
    """A fleet in which the largest region just about fits, or more than that, in time and in memory."""
    rates = st.one_of(st.just(float("inf")), st.floats(1, 1e6))
    slack = st.one_of(st.just(1.0), st.floats(1, 5), st.just(float("inf")))
    largest = int(max(setting.region_sizes))
    profiles = [
        Profile(
            rows_per_second=draw(rates),
            uplink=draw(st.floats(1, 1e6)),
            downlink=draw(rates),
            memory=naive_memory(setting, worker, largest) * draw(slack) * (1 + 1e-12),
        )
        for worker in range(setting.n_workers)
    ]
    needed = max(naive_seconds(setting, profile, i, largest) for i, profile in enumerate(profiles))
    return ResourceAware(profiles, deadline=needed * draw(slack) * (1 + 1e-12))


def regions_of(setting):
    return Regions.make(list(setting.region_sizes), setting.n_coefficients)


def simulate(policy, setting, seed, *, rounds=ROUNDS, first=1, staleness=None, model=None):
    """The masks of the rounds `first` to `rounds`, shape (T, N, Q), and the staleness after each.

    `model(number)` is the w of a round; without it, w is random, with a third of its entries zero.
    """
    policy.check(setting)
    regions = regions_of(setting)
    if staleness is None:
        staleness = np.zeros((setting.n_workers, setting.n_regions), dtype=int)
    all_masks, all_staleness = [], []
    for number in range(first, rounds + 1):
        rng = np.random.default_rng([seed, number])
        w = model(number) if model else random_model(setting, rng)
        if policy.side == "server":
            round = Round(setting, number, w, staleness, rng, regions)
            masks = validated_masks(policy.masks(round), policy=policy, round=round)
        else:
            masks = np.array([policy.mask(w, i, number, rng, regions) for i in range(setting.n_workers)])
        staleness = np.where(masks, 0, staleness + 1)
        all_masks.append(masks)
        all_staleness.append(staleness)
    return np.array(all_masks), np.array(all_staleness)


def random_model(setting, rng):
    return rng.normal(size=setting.n_coefficients) * (rng.random(setting.n_coefficients) < 2 / 3)


def measured(all_masks):
    record = MaskRecord.start(*all_masks.shape[1:])
    for masks in all_masks:
        record = record.after(masks)
    return record


def naive_measures(all_masks):
    """(psi*, gamma, S*) by definition; psi* is N if nothing was ever trained."""
    rounds, n_workers, n_regions = all_masks.shape
    psi, gamma, trained_least = n_workers, 0, n_regions
    for t in range(rounds):
        trained = 0
        for q in range(n_regions):
            workers = sum(1 for i in range(n_workers) if all_masks[t, i, q])
            if workers > 0:
                trained += 1
                psi = min(psi, workers)
        trained_least = min(trained_least, trained)
    for i in range(n_workers):
        for q in range(n_regions):
            run = 0
            for t in range(rounds):
                run = 0 if all_masks[t, i, q] else run + 1
                gamma = max(gamma, run)
    return psi, gamma, trained_least
