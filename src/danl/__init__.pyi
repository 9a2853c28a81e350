"""The public names of danl and their places: for type checkers, and for `_lazy.py`, which imports each when used."""

import danl.engines.flower
import danl.objective.layout
import danl.objective.losses
import danl.plots.gallery
import danl.run.solver

from . import callbacks as callbacks
from . import engines as engines
from . import methods as methods
from . import policies as policies
from . import report as report
from ._version import __version__ as __version__
from .data import Dataset as Dataset
from .data import Shard as Shard
from .data import load_dataset as load_dataset
from .data import partition as partition
from .data.reference import ShardReference as ShardReference
from .design.analysis import Analysis as Analysis
from .design.design import Design as Design
from .errors import DanlWarning as DanlWarning
from .errors import InputError as InputError
from .estimators import DANLClassifier as DANLClassifier
from .estimators import DANLRegressor as DANLRegressor
from .objective.problem import Problem as Problem
from .objective.problem import RemoteProblem as RemoteProblem
from .objective.regions import Regions as Regions
from .plots.figures import plot_histories as plot_histories
from .policies import Profile as Profile
from .protocol.graph import Graph as Graph
from .protocol.guards import Guards as Guards
from .run.callback import STOP as STOP
from .run.checkpoint import Checkpoints as Checkpoints
from .run.history import History as History
from .run.history import Row as Row
from .run.result import Reference as Reference
from .run.result import Result as Result
from .run.solver import observed_information as observed_information
from .run.solver import reference_optimum as reference_optimum
from .run.solver import solve as solve
from .run.trace import Trace as Trace
from .statistics.cohort import Cohort as Cohort
from .statistics.cohort import cohort as cohort
from .statistics.fit import GLMFit as GLMFit
from .statistics.glm import glm as glm
from .statistics.model_file import Model as Model
from .theory import Certificate as Certificate
from .theory import certify as certify

flower = danl.engines.flower
gallery = danl.plots.gallery
layout = danl.objective.layout
objectives = danl.objective.losses
solver = danl.run.solver
