"""What the paper leaves open or contradicts, and what was chosen here; the reports print this list."""

from __future__ import annotations

OPEN_POINTS: tuple[tuple[str, str], ...] = (
    (
        "The algorithm evaluates gradients at the pruned model w * tau; its figures show convergence, which that "
        "cannot give (the bias delta^2 of Lemma 4 does not vanish).",
        "Three readings: `danl-paper` to the letter, `danl-masked` with gradients at w and only the fragments masked, "
        "`danl` with corrected memory and a safeguard. Every figure and claim is shown for all three.",
    ),
    (
        "How masks of given psi*, S* and gamma are drawn is not said ('we randomly select partial regions not to be "
        "trained periodically').",
        "psi* random workers a region (`coverage`); one random region for all workers (`subset:S=1,order=random`); for "
        "gamma two ways: waits drawn from 0 to gamma (`waits=spread`) and always gamma (`waits=longest`). The "
        "orderings of Figure 2 depend on it.",
    ),
    (
        "The algorithm averages the memory over all N workers; the proofs average trained regions over the workers "
        "that trained them.",
        "All N, as in the algorithm; `aggregate='covered'` is the other.",
    ),
    ("mu, the floor of the projection, is not given.", "lambda/m, the strong convexity the penalty guarantees."),
    (
        "FedAvg's local steps and learning rate are not given.",
        "10 full-batch steps of 1/L a round; the tenth iterate is the start.",
    ),
    (
        "F(w*) is the value after 20 steps of Newton's method. From the FedAvg start, undamped Newton can "
        "end elsewhere.",
        "F* is found by safeguarded Newton and verified by its gradient norm; gaps to the paper's F* are drawn as well "
        "(files ending in -newton20).",
    ),
    (
        "How the rows are split over the workers is not said.",
        "Shuffled and cut into even shards; the seed of a run sets it. The claim on heterogeneous data uses "
        "Dirichlet shards.",
    ),
    (
        "One penalty, lambda = 1e-4, in lambda/(2m): the smallest eigenvalue of the Hessian is then about 6e-7 on a1a.",
        "The same, and alpha = 1e-4 and 1e-3 on the averaged loss, so that one sees where each reading converges.",
    ),
    ("The number of seeds is not given.", "Five: the median as a line, the range as a band."),
    (
        "zeta is a random sample in each round; the experiments do not say its size.",
        "The whole shard. Mini-batches are an option.",
    ),
    (
        "The definition of strong convexity lacks a square; L is not defined for a penalised loss, which is not "
        "Lipschitz.",
        "The square is put in; L is taken on the smallest ball that holds every model of the run (docs/theory.md).",
    ),
    (
        "Lemma 3 and Theorem 1 state the noise with constants that differ by a factor of 2, and Theorem 1's induction "
        "uses |w_t - w*|^2 where condition (iv) bounds |w_0 - w*|.",
        "Theorem 1 as printed is what is checked (docs/theory.md).",
    ),
)
