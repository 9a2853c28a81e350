"""Tasks that bring their own work, by what is asked: those of the field's methods, and of tables of a fitted model.

Importing this package makes them known to the wire, so that an engine's workers can read them.
"""

from danl.tasks.batch_gradient import BatchGradientReply, BatchGradientTask
from danl.tasks.binned_counts import BinnedReply, BinnedTask
from danl.tasks.column_counts import ColumnsReply, ColumnsTask
from danl.tasks.fit_questions import FitReply, FitTask
from danl.tasks.gradient_differences import DifferenceReply, DifferenceTask
from danl.tasks.learned_hessian import LearnReply, LearnTask
from danl.tasks.local_fit import LocalFitReply, LocalFitTask
from danl.tasks.newton_directions import (
    CorrectedDirectionTask,
    HessianProductsReply,
    HessianProductsTask,
    NewtonDirectionReply,
    NewtonDirectionTask,
)
from danl.tasks.null_model import NullReply, NullTask
from danl.tasks.proximal_step import ProximalStepReply, ProximalStepTask
from danl.tasks.pruned_steps import PrunedStepsReply, PrunedStepsTask
from danl.tasks.quadratic_steps import QuadraticStepsReply, QuadraticStepsTask
from danl.tasks.several import SeveralReply, SeveralTask
from danl.tasks.step_constants import StepConstantsReply, StepConstantsTask
from danl.tasks.trial_losses import TrialLossesReply, TrialLossesTask

__all__ = [
    "BatchGradientReply",
    "BatchGradientTask",
    "BinnedReply",
    "BinnedTask",
    "ColumnsReply",
    "ColumnsTask",
    "CorrectedDirectionTask",
    "DifferenceReply",
    "DifferenceTask",
    "FitReply",
    "FitTask",
    "HessianProductsReply",
    "HessianProductsTask",
    "LearnReply",
    "LearnTask",
    "LocalFitReply",
    "LocalFitTask",
    "NewtonDirectionReply",
    "NewtonDirectionTask",
    "NullReply",
    "NullTask",
    "ProximalStepReply",
    "ProximalStepTask",
    "PrunedStepsReply",
    "PrunedStepsTask",
    "QuadraticStepsReply",
    "QuadraticStepsTask",
    "SeveralReply",
    "SeveralTask",
    "StepConstantsReply",
    "StepConstantsTask",
    "TrialLossesReply",
    "TrialLossesTask",
]
