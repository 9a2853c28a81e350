"""A plain, slow oracle for the methods: Algorithm 1 of the paper and the baselines, by the book.

It shares no code with the package and imports nothing from it: numpy only, dense arrays, loops over
workers, regions and rows wherever a loop reads like the formula. Where the package and this file
disagree, one of them is wrong.

The objective (the paper's section "Experiments"), for worker i with rows x_j, labels y_j in {0, 1}
and row weights s_j (all ones if None), W_i = sum_j s_j:

    F_i(w) = (1/W_i) sum_j s_j loss(y_j, x_j . w) + (penalty_i/2) |w|^2,   penalty_i = lam / W_i
    loss(y, z) = -y log p(z) - (1-y) log(1 - p(z)),   p(z) = 1 / (1 + exp(-z))
    f(w) = sum_i worker_weights_i F_i(w),   worker_weights_i = 1/N if not given

Conventions shared by every method below:

- `shards` is a list of N triples (X, y, weights); `weights` may be None.
- `worker_weights` is None (1/N each) or N numbers summing to 1, used in every average over workers.
- A method returns its iterates as a list, w0 first. `rounds` is the number of model updates, so
  the list has rounds + 1 entries. Algorithm 1 with T masked rounds makes T + 1 updates (Phase I is
  one more) and returns [w0, w1, ..., w_{T+1}].
"""

import numpy as np

# ---- one row ---------------------------------------------------------------------------------
# With z the margin x . w:  log p(z) = -logaddexp(0, -z)  and  log(1 - p(z)) = -logaddexp(0, z).
# Neither overflows, and neither is formed as a difference of two nearly equal numbers.


def _row_loss(label, margin):
    if label == 1:
        return np.logaddexp(0.0, -margin)  # -log p
    if label == 0:
        return np.logaddexp(0.0, margin)  # -log(1 - p)
    raise ValueError(f"labels are 0 or 1, got {label!r}")


def _row_slope(label, margin):
    """d loss / d margin = p - y."""
    if label == 1:
        return -np.exp(-np.logaddexp(0.0, margin))  # p - 1 = -(1 - p)
    if label == 0:
        return np.exp(-np.logaddexp(0.0, -margin))  # p
    raise ValueError(f"labels are 0 or 1, got {label!r}")


def _row_curvature(margin):
    """d^2 loss / d margin^2 = p (1 - p)."""
    return np.exp(-np.logaddexp(0.0, -margin) - np.logaddexp(0.0, margin))


# ---- one worker ------------------------------------------------------------------------------


def _row_weights(y, weights):
    """The row weights s_j as an array, and W_i as a Python float (dividing by 0.0 then raises)."""
    s = np.ones(len(y)) if weights is None else np.asarray(weights, dtype=float)
    if s.shape != (len(y),):
        raise ValueError(f"weights must have shape ({len(y)},), got {s.shape}")
    return s, float(np.sum(s))


def local_loss(X, y, weights, w, penalty):
    """F_i(w)."""
    X, w = np.asarray(X, dtype=float), np.asarray(w, dtype=float)
    s, total_weight = _row_weights(y, weights)
    total = 0.0
    for j in range(len(y)):
        total += float(s[j] * _row_loss(y[j], X[j] @ w))
    return total / total_weight + penalty / 2 * float(w @ w)


def local_gradient(X, y, weights, w, penalty):
    """The gradient of F_i at w: (1/W_i) sum_j s_j (p_j - y_j) x_j + penalty w."""
    X, w = np.asarray(X, dtype=float), np.asarray(w, dtype=float)
    s, total_weight = _row_weights(y, weights)
    total = np.zeros(len(w))
    for j in range(len(y)):
        total += s[j] * _row_slope(y[j], X[j] @ w) * X[j]
    return total / total_weight + penalty * w


def local_hessian(X, y, weights, w, penalty):
    """The Hessian of F_i at w: (1/W_i) sum_j s_j p_j (1 - p_j) x_j x_j^T + penalty I."""
    X, w = np.asarray(X, dtype=float), np.asarray(w, dtype=float)
    s, total_weight = _row_weights(y, weights)
    total = np.zeros((len(w), len(w)))
    for j in range(len(y)):
        total += s[j] * _row_curvature(X[j] @ w) * np.outer(X[j], X[j])
    return total / total_weight + penalty * np.eye(len(w))


# ---- all workers -----------------------------------------------------------------------------


def _penalty(shard, lam):
    """The paper's scaling: penalty_i = lam / W_i."""
    _, y, weights = shard
    return lam / _row_weights(y, weights)[1]


def _loss_of(shard, lam, w):
    X, y, weights = shard
    return local_loss(X, y, weights, w, _penalty(shard, lam))


def _gradient_of(shard, lam, w):
    X, y, weights = shard
    return local_gradient(X, y, weights, w, _penalty(shard, lam))


def _hessian_of(shard, lam, w):
    X, y, weights = shard
    return local_hessian(X, y, weights, w, _penalty(shard, lam))


def _worker_weights(n_workers, worker_weights):
    if worker_weights is None:
        return np.full(n_workers, 1 / n_workers)
    p = np.asarray(worker_weights, dtype=float)
    if p.shape != (n_workers,) or abs(np.sum(p) - 1) > 1e-12:
        raise ValueError(f"worker_weights must be {n_workers} numbers summing to 1, got {p}")
    return p


def objective(shards, lam, w, worker_weights=None):
    """f(w) = sum_i worker_weights_i F_i(w)."""
    p = _worker_weights(len(shards), worker_weights)
    return sum(float(p[i]) * _loss_of(shards[i], lam, w) for i in range(len(shards)))


def gradient(shards, lam, w, worker_weights=None):
    """The gradient of f at w."""
    p = _worker_weights(len(shards), worker_weights)
    return sum(p[i] * _gradient_of(shards[i], lam, w) for i in range(len(shards)))


def _hessian(shards, lam, w, worker_weights=None):
    p = _worker_weights(len(shards), worker_weights)
    return sum(p[i] * _hessian_of(shards[i], lam, w) for i in range(len(shards)))


# ---- Definition "Projection" -----------------------------------------------------------------


def project(A, mu):
    """[A]_mu = [A - mu I]_0 + mu I, where [M]_0 = sum_i max(lambda_i, 0) u_i u_i^T."""
    A = np.asarray(A, dtype=float)
    if not np.allclose(A, A.T, rtol=1e-12, atol=1e-14):
        raise ValueError("the projection is defined for symmetric matrices")
    identity = np.eye(len(A))
    eigenvalues, eigenvectors = np.linalg.eigh(A - mu * identity)
    positive_part = np.zeros_like(A)
    for i in range(len(A)):
        u = eigenvectors[:, i]
        positive_part += max(eigenvalues[i], 0.0) * np.outer(u, u)
    return positive_part + mu * identity


# ---- Algorithm 1 -----------------------------------------------------------------------------


def danl_paper(shards, lam, w0, masks, groups, mu, aggregate="all", worker_weights=None):
    """Algorithm 1 to the letter: worker i sends grad F_i(w * tau_i) * tau_i.

    Parameters
    ----------
    masks : (T, N, Q) booleans; masks[t - 1, i, q] says whether worker i trains region q in round t.
    groups : Q index arrays that together hold every one of 0..d-1 once.
    mu : the floor of the projection.
    aggregate : "all" averages the memory over all N workers (the algorithm). "covered" averages a
        trained region over C^{t,q} only, worker weights renormalised there, and an untrained region
        over all N memories (the proofs).

    Returns
    -------
    [w0, w1, ..., w_{T+1}]
    """
    return _danl(shards, lam, w0, masks, groups, mu, aggregate, worker_weights, prune=True)


def danl_masked(shards, lam, w0, masks, groups, mu, aggregate="all", worker_weights=None):
    """Like `danl_paper`, but worker i sends grad F_i(w) * tau_i: only the message is masked."""
    return _danl(shards, lam, w0, masks, groups, mu, aggregate, worker_weights, prune=False)


def _danl(shards, lam, w0, masks, groups, mu, aggregate, worker_weights, prune):
    masks = np.asarray(masks, dtype=bool)
    w = np.array(w0, dtype=float)
    N, Q, d = len(shards), len(groups), len(w)
    p = _worker_weights(N, worker_weights)
    groups = [np.asarray(group, dtype=int) for group in groups]
    if masks.ndim != 3 or masks.shape[1:] != (N, Q):
        raise ValueError(f"masks must have shape (T, {N}, {Q}), got {masks.shape}")
    if sorted(k for group in groups for k in group.tolist()) != list(range(d)):
        raise ValueError(f"groups must hold every index of 0..{d - 1} exactly once")
    if aggregate not in ("all", "covered"):
        raise ValueError(f'aggregate is "all" or "covered", got {aggregate!r}')

    # Phase I. Every worker sends its gradient and its Hessian at w0; the server projects the
    # average Hessian, keeps the gradients as the memory Theta, and makes the first step.
    iterates = [w.copy()]
    curvature = project(_hessian(shards, lam, w, p), mu)
    theta = [_gradient_of(shard, lam, w) for shard in shards]
    w = w - np.linalg.solve(curvature, sum(p[i] * theta[i] for i in range(N)))
    iterates.append(w.copy())

    # Phase II. Rounds t = 1..T.
    for mask in masks:
        # Every worker: mask, prune, gradient, send.
        sent = []
        for i in range(N):
            tau = np.zeros(d)
            for q in range(Q):
                if mask[i, q]:
                    tau[groups[q]] = 1.0
            submodel = w * tau if prune else w
            sent.append(_gradient_of(shards[i], lam, submodel) * tau)

        # The server: replace the fragments that arrived, keep the others, average by region.
        direction = np.zeros(d)
        for q in range(Q):
            covered = [i for i in range(N) if mask[i, q]]  # C^{t,q}
            for i in covered:
                theta[i][groups[q]] = sent[i][groups[q]]
            averaged = covered if aggregate == "covered" and covered else range(N)
            total_weight = float(sum(p[i] for i in averaged))
            for i in averaged:
                direction[groups[q]] += p[i] / total_weight * theta[i][groups[q]]

        w = w - np.linalg.solve(curvature, direction)
        iterates.append(w.copy())
    return iterates


# ---- the baselines ---------------------------------------------------------------------------


def newton_zero(shards, lam, w0, rounds, mu, worker_weights=None):
    """Newton with the projected Hessian of w0 kept for good: w <- w - [H(w0)]_mu^-1 grad f(w)."""
    w = np.array(w0, dtype=float)
    curvature = project(_hessian(shards, lam, w, worker_weights), mu)
    iterates = [w.copy()]
    for _ in range(rounds):
        w = w - np.linalg.solve(curvature, gradient(shards, lam, w, worker_weights))
        iterates.append(w.copy())
    return iterates


def newton_undamped(shards, lam, w0, rounds, mu=None, worker_weights=None):
    """Newton with unit steps: w <- w - H(w)^-1 grad f(w); H(w) is projected first if mu is given.

    It may diverge: check the gradient before taking the last iterate for the optimum.
    """
    w = np.array(w0, dtype=float)
    iterates = [w.copy()]
    for _ in range(rounds):
        curvature = _hessian(shards, lam, w, worker_weights)
        if mu is not None:
            curvature = project(curvature, mu)
        w = w - np.linalg.solve(curvature, gradient(shards, lam, w, worker_weights))
        iterates.append(w.copy())
    return iterates


def gradient_descent(shards, lam, w0, rounds, learning_rate, worker_weights=None):
    """w <- w - learning_rate grad f(w)."""
    w = np.array(w0, dtype=float)
    iterates = [w.copy()]
    for _ in range(rounds):
        w = w - learning_rate * gradient(shards, lam, w, worker_weights)
        iterates.append(w.copy())
    return iterates


def fedavg(shards, lam, w0, rounds, steps, learning_rate, worker_weights=None):
    """Each round every worker takes `steps` full-batch gradient steps from w; w is their average.

    A worker's steps descend its own F_i, penalty included.
    """
    p = _worker_weights(len(shards), worker_weights)
    w = np.array(w0, dtype=float)
    iterates = [w.copy()]
    for _ in range(rounds):
        average = np.zeros(len(w))
        for i in range(len(shards)):
            local = w.copy()
            for _ in range(steps):
                local = local - learning_rate * _gradient_of(shards[i], lam, local)
            average += p[i] * local
        w = average
        iterates.append(w.copy())
    return iterates


# ---- what the masks promise ------------------------------------------------------------------


def measure(masks):
    """Return (psi*, S*, gamma) of a (T, N, Q) boolean schedule.

    psi* : min over rounds t and regions q in A^t of |C^{t,q}|; None if no region is ever trained.
    S* : min over rounds of |A^t|, the number of regions some worker trains; None if T = 0.
    gamma : the longest run of rounds a (worker, region) pair goes untrained. Phase I trains every
        pair, so a run may start at round 1; it may also last to round T. Full masks give 0.
    """
    masks = np.asarray(masks, dtype=bool)
    T, N, Q = masks.shape
    coverages = []
    trained_counts = []
    for t in range(T):
        trained = 0
        for q in range(Q):
            workers = 0
            for i in range(N):
                if masks[t, i, q]:
                    workers += 1
            if workers > 0:
                trained += 1
                coverages.append(workers)
        trained_counts.append(trained)

    gamma = 0
    for i in range(N):
        for q in range(Q):
            run = 0
            for t in range(T):
                run = 0 if masks[t, i, q] else run + 1
                gamma = max(gamma, run)
    return min(coverages, default=None), min(trained_counts, default=None), gamma
