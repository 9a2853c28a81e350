"""Policies from what people write: an object, a function, or text such as ``coverage:psi=3,gamma=2``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, cast

import numpy as np

from danl.errors import InputError, bad_argument
from danl.policies.base import Policy
from danl.policies.coverage import Coverage
from danl.policies.custom import Custom
from danl.policies.full import Full
from danl.policies.magnitude import Magnitude
from danl.policies.profiles import Profile
from danl.policies.random import Random
from danl.policies.resource_aware import ResourceAware
from danl.policies.schedule import Schedule
from danl.policies.subset import Subset
from danl.spec import closest_first, parse_spec

_BY_NAME: Mapping[str, type[Any]] = {
    "full": Full,
    "coverage": Coverage,
    "subset": Subset,
    "random": Random,
    "magnitude": Magnitude,
}
_EXAMPLES = {
    "coverage": "coverage:psi=3,gamma=2",
    "subset": "subset:regions_per_round=1",
    "random": "random:keep=0.5",
    "magnitude": "magnitude:keep=0.5",
    "schedule": "schedule:file=masks.npy",
    "resource-aware": "resource-aware:deadline=0.1",
}
_NAMES = (*_BY_NAME, "schedule", "resource-aware")
_SHORT_OPTIONS = {("subset", "S"): "regions_per_round"}


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
    if spec is None:
        return Full()
    if isinstance(spec, str):
        return _from_text(spec, profiles)
    if isinstance(spec, type):
        raise bad_argument("policy", spec, "a policy, not a class of policies", f"write {spec.__name__}(...)")
    if _is_policy(spec):
        return cast(Policy, spec)
    if callable(spec):
        return Custom(spec)
    raise bad_argument(
        "policy",
        spec,
        "a policy, a function (w, worker, round, rng) -> mask, or text such as 'coverage:psi=3'",
    )


def _is_policy(spec: object) -> bool:
    makes_masks = {"server": "masks", "worker": "mask"}.get(str(getattr(spec, "side", None)))
    return makes_masks is not None and all(
        callable(getattr(spec, method, None)) for method in ("check", "promise", makes_masks)
    )


def _from_text(text: str, profiles: Sequence[Profile] | None) -> Policy:
    name, options = parse_spec(text, argument="policy")
    if name not in _NAMES:
        names = ", ".join(closest_first(name, _NAMES))
        raise bad_argument("policy", text, f"one of {names}", f"{name!r} is not one of them")
    if name == "resource-aware":
        _check_options(text, name, options, known=["deadline"], required=["deadline"])
        if profiles is None:
            raise bad_argument(
                "policy",
                text,
                "given with a profile of every worker",
                "add --profiles FILE, or in Python danl.solve(..., profiles=profiles)",
            )
        return ResourceAware(profiles, cast(float, options["deadline"]))
    for (policy_name, short), option in _SHORT_OPTIONS.items():
        if name == policy_name and short in options:
            if option in options:
                allowed = f"{name} with {option} given once"
                raise bad_argument("policy", text, allowed, f"{short!r} is short for it")
            options[option] = options.pop(short)
    if name == "schedule":
        _check_options(text, name, options, known=["file", "cycle"], required=["file"])
        return _schedule_from_file(str(options["file"]), options.get("cycle", False))
    policy = _BY_NAME[name]
    known = [field.name for field in fields(policy)]
    required = [field.name for field in fields(policy) if field.default is MISSING]
    _check_options(text, name, options, known=known, required=required)
    return cast(Policy, policy(**options))


def _check_options(
    text: str, name: str, options: Mapping[str, object], *, known: list[str], required: list[str]
) -> None:
    for option in options:
        if option not in known:
            listed = ", ".join(closest_first(option, known))
            allowed = f"with options among {listed}" if known else "without options"
            raise bad_argument("policy", text, f"{name} {allowed}", f"{option!r} is unknown")
    for option in required:
        if option not in options:
            raise bad_argument("policy", text, f"{name} with {option}", f"try {_EXAMPLES[name]!r}")


def _schedule_from_file(path: str, cycle: Any) -> Schedule:
    allowed = "a .npy file of T x N x Q booleans"
    try:
        masks = np.load(path, allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"policy option file={path!r}: must be {allowed}; it cannot be read ({error})") from error
    if not isinstance(masks, np.ndarray):
        masks.close()
        raise bad_argument("policy option file", path, allowed, "save the masks alone, with numpy.save")
    return Schedule(masks, cycle=cycle)
