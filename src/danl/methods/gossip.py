r"""What methods without a server have in common: every worker is a node of a graph, with a model of its own.

    node i minimises  scale_i F_i,  scale_i = N weight_i          f = sum_i weight_i F_i = (1 / N) sum_i scale_i F_i

In an exchange every worker computes at its own model, and then each node mixes what it has with what its neighbours
sent, and with nothing else: mixing @ models, with the weights of `danl.protocol.graph`. The loop plays the network. The
bytes that are counted are those along the edges: each node sends so many vectors, as long as the model, to every
neighbour. `w` of a state, what a run returns, is the average of the nodes' models, which no node has.

A worker that is absent from an exchange has computed nothing: its node keeps its model in this iteration, and its
neighbours mix as usual. The end is not proven, as nobody sees a whole gradient at the average: runs take their rounds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from danl.errors import InputError
from danl.frozen import replace
from danl.methods.base import Setup, Turn
from danl.protocol.graph import Graph
from danl.protocol.messages import Array, Exchange, Mask, ModelTask
from danl.protocol.replies import Replies
from danl.tasks.step_constants import StepConstantsTask


def graph_of(setup: Setup) -> Graph:
    """The run's graph: `danl.solve` makes one for methods with `over_graph`."""
    assert setup.graph is not None, "a method over a graph needs Setup.graph"
    return setup.graph


def scales(setup: Setup) -> Array:
    """What F_i counts at its node, (N, 1): 1 with uniform weights."""
    return np.asarray(setup.n_workers * setup.weights)[:, None]


def at_start(setup: Setup) -> Array:
    """w0 at every node, (N, d)."""
    return np.tile(setup.w0, (setup.n_workers, 1))


def ask_nodes(setup: Setup, task: ModelTask, models: Array, vectors: int = 1, **own: NDArray[np.float64]) -> Exchange:
    """A task for every worker at its own model, with other fields of its own; and the `vectors` it sends on an edge.

    The model of the task itself is the largest, by which the rules for replies see whether one has blown up.
    """
    largest = models[np.abs(models).max(axis=1).argmax()]
    task, everyone = replace(task, w=largest), np.arange(setup.n_workers)
    return Exchange(task.name, task, everyone, own={"w": models, **own}, edges=graph_of(setup).degrees, vectors=vectors)


def ask_constants(setup: Setup, turn: Turn, models: Array) -> Exchange:
    """Ask for what steps are chosen by, with the whole gradient at the nodes' models; a vector is sent on an edge.

    Nodes find the largest of their constants by a gossip of numbers, which are too few to be counted.
    """
    return ask_nodes(setup, StepConstantsTask(turn.exchange, models[0]), models)


def node_values(replies: Replies, setup: Setup, field: str) -> tuple[Array, Mask]:
    """A field of the replies at its nodes, (N, d), zeros where a worker is absent; and who is there, (N,)."""
    values, there = np.zeros((setup.n_workers, setup.n_coefficients)), np.zeros(setup.n_workers, dtype=bool)
    for worker, message in replies.messages.items():
        values[worker], there[worker] = getattr(message, field), True
    return values, there


def largest_smoothness(replies: Replies, setup: Setup, example: str, batch_size: int | None = None) -> float:
    """max_i scale_i L_i of what nodes minimise, from replies to `ask_constants`; of mini-batches of it, if it has any.

    Refuses a loss without a bound on its curvature: what follows from it has to be given, as in the example.
    """
    own = scales(setup)[:, 0]
    constants = {
        worker: own[worker] * (each.smoothness + (each.row_smoothness / batch_size if batch_size else 0.0))
        for worker, each in replies.messages.items()
    }
    largest = max(constants.values())
    if not np.isfinite(largest):
        option = example.partition(":")[2].partition("=")[0]
        raise InputError(
            f"{option}=None: this loss has no bound on its curvature to take it from; "
            f"give one, for example --method {example}"
        )
    return float(largest) if largest > 0 else 1.0
