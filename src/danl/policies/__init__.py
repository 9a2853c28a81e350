"""Mask policies: which regions each worker trains in a round.

Planned at the server, for all workers at once, and so with promises (psi*, S*, gamma):

- `Full`: everything;
- `Coverage`: at least psi workers a region, staleness at most gamma;
- `Subset`: the same few regions for all workers, in turn or at random;
- `ResourceAware`: what each worker's machine manages by a deadline;
- `Schedule`: masks given in advance.

Chosen by each worker, as the paper's M(w, i):

- `Random`: coin flips;
- `Magnitude`: the regions in which the model is largest;
- `Custom`: any function.

`make_policy` makes one of text; `MaskRecord` measures what the masks of a run amounted to.
"""

from danl.policies.base import Limits, PlannedPolicy, Policy, Promise, Round, Setting, WorkerPolicy
from danl.policies.from_spec import make_policy
from danl.policies.masks import MaskRecord, coverage_counts, staleness_after, validated_mask, validated_masks
from danl.policies.planned import Coverage, Full, Subset
from danl.policies.profile_file import read_profiles
from danl.policies.profiles import Fleet, Load, Profile, load_of, seconds
from danl.policies.resource_aware import ResourceAware
from danl.policies.schedule import Schedule
from danl.policies.worker_side import Custom, Magnitude, Random

__all__ = [
    "Coverage",
    "Custom",
    "Fleet",
    "Full",
    "Limits",
    "Load",
    "Magnitude",
    "MaskRecord",
    "PlannedPolicy",
    "Policy",
    "Profile",
    "Promise",
    "Random",
    "ResourceAware",
    "Round",
    "Schedule",
    "Setting",
    "Subset",
    "WorkerPolicy",
    "coverage_counts",
    "load_of",
    "make_policy",
    "read_profiles",
    "seconds",
    "staleness_after",
    "validated_mask",
    "validated_masks",
]
