"""DANL: Distributed Adaptive Newton Learning. One configuration, three faces of one algorithm.

| preset | gradient evaluated at | memory | curvature | for |
| --- | --- | --- | --- | --- |
| danl-paper | w * tau (pruned) | raw | once | Algorithm 1 to the letter |
| danl-masked | w | raw | once | what the paper's figures look like |
| danl | w | corrected | adaptive, safeguarded | people who want the answer |

With curvature="once" the loop is Algorithm 1's (`danl.methods.algorithm1`): nothing is looked at before it is trusted.
With "adaptive", or a Hessian exchange every k rounds, it is the safeguarded one (`danl.methods.safeguarded`). With
"block", "lowrank:50" or "diag" a part of the Hessian is exchanged in its place, for many coefficients
(`danl.server.partial_curvature`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from danl.checks import check_choice, check_share, check_whole, is_whole
from danl.errors import InputError, bad_argument
from danl.frozen import cached_property
from danl.methods.algorithm1 import Algorithm1
from danl.methods.base import Info, Setup, Turn
from danl.methods.curvature_choice import choose_curvature
from danl.methods.safeguarded import Safeguarded
from danl.methods.shared_options import check_options
from danl.objective.regions import Regions
from danl.protocol.compressors import make_compressor
from danl.protocol.hessian_form import WHOLE, HessianForm
from danl.protocol.messages import Exchange, Submodel
from danl.protocol.replies import Replies

CURVATURES = (
    "'adaptive' or 'full', 'block', 'lowrank:50' (or another number), 'diag', 'once' or a whole number of rounds >= 1"
)


@dataclass(frozen=True)
class DANL:
    """Distributed Adaptive Newton Learning; the defaults are the method to use, the rest is for study.

    Parameters
    ----------
    memory : "corrected" or "raw"
        What a stale fragment counts for: what it is worth at today's model to first order, or what it was.
    submodel : "full" or "pruned"
        Where a worker evaluates its gradient: at w, or at w * tau_i as the paper prints it.
    curvature : "adaptive", "once" or int; or "full", "block", "lowrank:r", "diag"
        When Hessians are exchanged: when progress asks for it, in Phase I only, or every so many rounds. Or what is
        exchanged of them, when progress asks for it: all of them, a block for every region, a sketch of r columns and
        the diagonal, the diagonal. With "adaptive" that is chosen before the first exchange: all, those of some rows,
        or the diagonal, by what is likely to take the least time (`danl.methods.curvature_choice`).
    aggregate : "all" or "covered"
        Average the memory over all workers (the algorithm), or trained regions over C^{t,q} only (the proofs).
    mu : float, optional
        Floor of the projection. Default: the strong convexity the penalty guarantees, the paper's lambda / m.
    batch_size, hessian_batch : int, optional
        Rows a worker samples for a gradient and for the Hessian. Default: its whole shard, or of the Hessian what was
        chosen.
    pairs : int
        Pairs of steps and changes of the gradient that correct the curvature where everyone sent all of the gradient
        (limited-memory BFGS), nothing of it on the wire; on a part of the Hessian five times as many. 0 is none.
    curvature_from : "auto", "everyone", "able" or int
        Who sends curvature (`danl.methods.senders`): everyone; those whose machines can, by their profiles; or so many,
        taking turns. More send theirs when that has not paid. Default: the able where there are profiles, else
        everyone, and 32 where there are more than 100 workers.
    hessian_compressor : str, optional
        What compresses every worker's Hessian on its way: "rankr:5", "topk:1000", "randk:1000", "natural" or "identity"
        (`danl.protocol.compressors`). What arrives counts as a part of the Hessian. Default: nothing.
    whole_after : int, optional
        Where a part of the Hessian is exchanged, or a compressed one: after so many exchanges, if about as many are
        still to come, whole Hessians take its place. Default: never; where `curvature` is "adaptive", when they would
        have cost as much.
    finish : bool
        With mini-batches: go over to whole shards when noise is all that is left.
    contraction, window : float, int
        Exchange Hessians when that pays at the rate of the last `window` steps (`danl.methods.ladder`); in masked
        rounds, when the gains of the steps shrank by less than contraction a step, or than a half.
    gamma_max : int
        Whole gradients of everyone are asked for when no worker has sent a region for more rounds than this, or when
        more than 100 workers have gone on for so many rounds without the word of everyone.
    masks : "auto" or "always"
        Whether masked rounds are asked where they pay, or wherever nothing else is due.
    hessian_dtype : "auto", "float64" or "float32"
        The numbers that Hessians, or parts of them, are sent in. float32 halves their bytes; steps change by what is
        rounded of the curvature, the optimum does not. Default: float32 where there are profiles, until more digits are
        needed.
    patience : int
        A worker that missed this many exchanges in a row counts as gone. An exchange is missed when the engine has
        waited for the worker as long as its deadline says; one that is down and expected back has missed nothing.
    quorum : float
        The run goes on while more than this share of the workers is alive.

    """

    memory: Literal["corrected", "raw"] = "corrected"
    submodel: Submodel = "full"
    curvature: str | int = "adaptive"
    aggregate: Literal["all", "covered"] = "all"
    mu: float | None = None
    batch_size: int | None = None
    hessian_batch: int | None = None
    finish: bool = False
    contraction: float = 0.1
    window: int = 2
    gamma_max: int = 50
    patience: int = 10
    quorum: float = 0.5
    pairs: int = 20
    curvature_from: str | int = "auto"
    masks: Literal["auto", "always"] = "auto"
    hessian_dtype: Literal["auto", "float64", "float32"] = "auto"
    whole_after: int | None = None
    hessian_compressor: str | None = None

    def __post_init__(self) -> None:
        check_choice("memory", self.memory, ("corrected", "raw"))
        check_choice("submodel", self.submodel, ("full", "pruned"))
        check_choice("masks", self.masks, ("auto", "always"))
        check_choice("aggregate", self.aggregate, ("all", "covered"))
        check_choice("hessian_dtype", self.hessian_dtype, ("auto", "float64", "float32"))
        parts = isinstance(self.curvature, str) and HessianForm.parse(self.curvature) is not None
        if not (parts or self.curvature in ("adaptive", "once") or is_whole(self.curvature, 1)):
            raise bad_argument("curvature", self.curvature, CURVATURES)
        if self.curvature_from not in ("auto", "everyone", "able") and not is_whole(self.curvature_from, 1):
            allowed = "'everyone', 'able', 'auto' or a whole number of workers >= 1"
            raise bad_argument("curvature_from", self.curvature_from, allowed)
        check_options(self, window=1, gamma_max=1, patience=1, pairs=0)
        if self.whole_after is not None:
            check_whole("whole_after", self.whole_after, 1, "leave it out for never")
        check_share("contraction", self.contraction, zero=False, one=False)
        check_share("quorum", self.quorum, zero=False, one=False)
        if self.hessian_compressor is not None:
            make_compressor(self.hessian_compressor, "hessian_compressor")
            if self.curvature == "once" or self.hessian_form.kind != "full":
                allowed = "left out unless curvature is 'adaptive', 'full' or a whole number of rounds"
                next_step = f"here curvature is {self.curvature!r}"
                raise bad_argument("hessian_compressor", self.hessian_compressor, allowed, next_step)
        if self.submodel == "pruned" and (self.memory != "raw" or self.curvature != "once"):
            raise InputError(
                "submodel='pruned': needs memory='raw' and curvature='once', because losses and corrections are "
                "those of w and not of the pruned model; that is the preset danl-paper"
            )
        if self.aggregate == "covered" and (self.memory != "raw" or self.curvature != "once"):
            raise InputError("aggregate='covered': needs memory='raw' and curvature='once', the proofs' setting")

    @property
    def name(self) -> str:
        if self.curvature != "once" or self.memory == "corrected":
            return "danl"
        return "danl-paper" if self.submodel == "pruned" else "danl-masked"

    def suited(self, setup: Setup) -> tuple[DANL, str]:
        """The method with the curvature that suits a problem, and why, where that is left to it."""
        asked = self.hessian_batch is not None or self.batch_size is not None or not self.pairs
        if self.hessian_compressor is not None:
            lossless = make_compressor(self.hessian_compressor).lossless(setup.n_coefficients)
            return (replace(self, hessian_compressor="identity"), "") if lossless else (self, "")
        if self.curvature != "adaptive" or asked or setup.limits is not None:
            return self, ""
        known = setup.profiles is not None  # then what a question costs decides, exchange by exchange
        choice = choose_curvature(replace(setup, rows_here=False) if known else setup)
        if known and choice.curvature == "full":
            return self, ""
        made = replace(self, curvature=choice.curvature, hessian_batch=choice.rows, whole_after=choice.whole_after)
        return made, choice.why

    @property
    def curvature_when_needed(self) -> bool:
        """Whether progress decides when Hessians are exchanged; with one in every round it is Newton's method."""
        return isinstance(self.curvature, str) and self.curvature != "once"

    @property
    def reports_objective(self) -> bool:
        """Whether the objective at its model is always what the workers reported, and need not be measured."""
        return self.curvature != "once"

    @cached_property
    def hessian_form(self) -> HessianForm:
        """What is exchanged of a Hessian."""
        found = HessianForm.parse(self.curvature) if isinstance(self.curvature, str) else None
        found = WHOLE if found is None else found
        return found if self.hessian_compressor is None else replace(found, compressor=self.hessian_compressor)

    def curvature_numbers(self, regions: Regions) -> int:
        """Numbers of the curvature that the server holds."""
        return (WHOLE if self.whole_after is not None else self.hessian_form).held(regions)

    @cached_property
    def _loop(self) -> Algorithm1 | Safeguarded:
        return Algorithm1(self) if self.curvature == "once" else Safeguarded(self)

    # What a method does (`danl.methods.base.Method`) is what the loop does.

    @cached_property
    def begin(self) -> Callable[[Setup], Any]:
        return self._loop.begin

    @cached_property
    def plan(self) -> Callable[[Any, Setup, Turn], Exchange]:
        return self._loop.plan

    @cached_property
    def absorb(self) -> Callable[[Any, Replies, Setup], tuple[Any, Info]]:
        return self._loop.absorb
