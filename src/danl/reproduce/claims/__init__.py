"""Verdicts on what the paper claims, computed from stored rows by stated rules.

base           what a claim and a verdict are
cases          from data sets to a word: the rule all claims share
measures       speed, progress and straightness of a run
orderings      psi* = 3 beats 1, gamma = 2 beats 4, one region a round is slow
dominance      psi* matters more than gamma
shapes         the early rise, linear convergence
bound          Theorem 1: factor one half, and whether it covers the experiments
conditioning   independence of the condition number
reaching       converges as printed, without tuning, with one Hessian exchange
cost           fewer bytes than first-order methods
heterogeneity  skewed shards
"""

from __future__ import annotations

from danl.reproduce.claims.base import Claim, Reader, Table, Verdict, Word
from danl.reproduce.claims.bound import FactorOneHalf, TheoryCovers
from danl.reproduce.claims.conditioning import IndependentOfCondition, LessSensitive
from danl.reproduce.claims.cost import FewerBytes
from danl.reproduce.claims.dominance import PsiDominates
from danl.reproduce.claims.heterogeneity import RobustToHeterogeneity
from danl.reproduce.claims.orderings import ORDERINGS
from danl.reproduce.claims.reaching import Converges, HessianOnce, NoTuning
from danl.reproduce.claims.shapes import EarlyRise, LinearConvergence
from danl.reproduce.runs import Plan, Run
from danl.reproduce.store import Stored

__all__ = ["CLAIMS", "Claim", "Reader", "Table", "Verdict", "Word", "claim_runs", "judge_all"]

CLAIMS: tuple[Claim, ...] = (
    Converges(),
    *ORDERINGS[:2],
    EarlyRise(),
    *ORDERINGS[2:],
    PsiDominates(),
    LinearConvergence(),
    FactorOneHalf(),
    TheoryCovers(),
    IndependentOfCondition(),
    LessSensitive(),
    NoTuning(),
    FewerBytes(),
    HessianOnce(),
    RobustToHeterogeneity(),
)
"""Every claim, in the order of the verdicts."""


def claim_runs(plan: Plan) -> list[Run]:
    """The runs all claims are judged by, each once."""
    return list(dict.fromkeys(run for claim in CLAIMS for run in claim.runs(plan)))


def judge_all(plan: Plan, read: Reader) -> list[Verdict]:
    """A verdict on every claim; each run is read once."""
    kept: dict[Run, Stored] = {}

    def once(run: Run) -> Stored:
        if run not in kept:
            kept[run] = read(run)
        return kept[run]

    return [claim.judge(plan, once) for claim in CLAIMS]
