"""Policies from what people write: an object, a function, or text such as ``coverage:psi=3,gamma=2``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from danl.errors import InputError, bad_argument
from danl.policies.base import Policy
from danl.policies.planned import Coverage, Full, Subset
from danl.policies.profiles import Profile
from danl.policies.resource_aware import ResourceAware
from danl.policies.schedule import Schedule
from danl.policies.worker_side import Custom, Magnitude, Random
from danl.spec import Registry


def make_policy(spec: object = None, profiles: Sequence[Profile] | None = None) -> Policy:
    """Make a policy of `spec`.

    Parameters
    ----------
    spec : None, policy, callable or str
        None is `Full`. A policy is returned as it is. A function ``(w, worker, round, rng) -> mask``
        becomes a `Custom`. Text names a policy and its options: ``"full"``,
        ``"coverage:psi=3,gamma=2,keep=0.1"``, ``"subset:S=1,order=random"``, ``"random:keep=0.5"``,
        ``"magnitude:keep=0.5"``, ``"schedule:file=masks.npy,cycle=true"``,
        ``"resource-aware:deadline=0.1"``, which needs the profiles.
    profiles : sequence of Profile, optional
        What each worker's machine can do.
    """
    made = Full() if spec is None else _REGISTRY.make(spec, profiles=profiles) if isinstance(spec, str) else spec
    if isinstance(made, type):
        raise bad_argument("policy", made, "a policy, not a class of policies", f"write {made.__name__}(...)")
    if not (lacks := _lacks(made)):
        return cast(Policy, made)
    if callable(made) and not hasattr(made, "side"):
        return Custom(made)
    if any(hasattr(made, part) for part in ("side", "masks", "mask")):
        has = "a policy has side, check, promise and masks or mask (docs/extending.md)"
        raise InputError(f"policy={spec!r}: lacks {', '.join(lacks)}; {has}")
    raise bad_argument(
        "policy", spec, "a policy, a function (w, worker, round, rng) -> mask, or text such as 'coverage:psi=3'"
    )


def _lacks(made: object) -> list[str]:
    """What an object would need to be a policy."""
    side = getattr(made, "side", None)
    masks = {"server": "masks", "worker": "mask"}.get(str(side))
    if masks is None:
        return [f"side, 'server' or 'worker'{f' (it is {side!r})' if side else ''}"]
    return [method for method in ("check", "promise", masks) if not callable(getattr(made, method, None))]


def _subset(regions_per_round: int | None = None, order: Any = "cyclic", S: int | None = None) -> Subset:
    given = [count for count in (regions_per_round, S) if count is not None]
    if len(given) != 1:
        raise InputError(
            "policy='subset': must be subset with regions_per_round, or S, which is short for it, given once; "
            "try 'subset:S=1'"
        )
    return Subset(given[0], order)


def _schedule(file: str, cycle: Any = False) -> Schedule:
    allowed = "a .npy file of T x N x Q booleans"
    try:
        masks = np.load(file, allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"policy option file={file!r}: must be {allowed}; it cannot be read ({error})") from error
    if not isinstance(masks, np.ndarray):
        masks.close()
        raise bad_argument("policy option file", file, allowed, "save the masks alone, with numpy.save")
    return Schedule(masks, cycle=cycle)


BY_NAME: dict[str, Callable[..., Policy]] = {
    "full": Full,
    "coverage": Coverage,
    "subset": _subset,
    "random": Random,
    "magnitude": Magnitude,
    "schedule": _schedule,
    "resource-aware": ResourceAware,
}
"""The policies of danl by name: what makes each of them."""
_REGISTRY = Registry(
    "policy",
    "danl.policies",
    BY_NAME,
    examples={
        "coverage": "coverage:psi=3,gamma=2",
        "random": "random:keep=0.5",
        "magnitude": "magnitude:keep=0.5",
        "schedule": "schedule:file=masks.npy",
        "resource-aware": "resource-aware:deadline=0.1",
    },
    needs={
        "profiles": "a profile of every worker; add --profiles FILE, or in Python danl.solve(..., profiles=profiles)"
    },
)
