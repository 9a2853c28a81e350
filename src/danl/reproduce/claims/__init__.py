"""Verdicts on what the paper claims, computed from stored rows by stated rules.

base           what a claim, its evidence and a verdict are, and the judge
rules          from evidence to a word: the rules and tables that claims share
measures       speed, progress and straightness of a run
experiments    by the figures' runs: converges, rises early, linearly, without tuning, with one Hessian exchange
orderings      psi* = 3 beats 1, gamma = 2 beats 4, one region a round is slow, psi* matters more than gamma
bound          Theorem 1: factor one half, and whether it covers the experiments
conditioning   independence of the condition number
cost           fewer bytes than first-order methods, skewed shards
"""

from __future__ import annotations

from functools import cache

from danl.reproduce.claims.base import Claim, Reader, Verdict
from danl.reproduce.claims.bound import FACTOR_ONE_HALF, THEORY_COVERS
from danl.reproduce.claims.conditioning import INDEPENDENT, LESS_SENSITIVE
from danl.reproduce.claims.cost import FEWER_BYTES, ROBUST
from danl.reproduce.claims.experiments import CONVERGES, EARLY_RISE, HESSIAN_ONCE, LINEAR, NO_TUNING
from danl.reproduce.claims.orderings import ORDERINGS, PSI_DOMINATES
from danl.reproduce.runs import Plan, RunSpec

CLAIMS: tuple[Claim, ...] = (
    CONVERGES,
    *ORDERINGS[:2],
    EARLY_RISE,
    *ORDERINGS[2:],
    PSI_DOMINATES,
    LINEAR,
    FACTOR_ONE_HALF,
    THEORY_COVERS,
    INDEPENDENT,
    LESS_SENSITIVE,
    NO_TUNING,
    FEWER_BYTES,
    HESSIAN_ONCE,
    ROBUST,
)
"""Every claim, in the order of the verdicts."""


def claim_runs(plan: Plan) -> list[RunSpec]:
    """The runs all claims are judged by, each once."""
    return list(dict.fromkeys(run for claim in CLAIMS for run in claim.runs(plan)))


def judge_all(plan: Plan, read: Reader) -> list[Verdict]:
    """A verdict on every claim; each run is read once."""
    once = cache(read)
    return [claim.judge(plan, once) for claim in CLAIMS]
