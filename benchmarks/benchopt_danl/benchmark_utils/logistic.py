"""The objective on all rows together, in plain numpy: what is measured does not depend on any solver's code.

f(w) = 1/n sum_r [log(1 + exp(x_r^T w)) - y_r x_r^T w] + alpha/2 |w|^2,    y_r in {0, 1}
"""

import numpy as np
from scipy.special import expit


def value_and_gradient(X, y, alpha, w):
    """f(w) and its gradient; X is (n, d), dense or sparse."""
    scores = X @ w
    value = np.mean(np.logaddexp(0.0, scores) - y * scores) + alpha / 2 * (w @ w)
    gradient = X.T @ (expit(scores) - y) / len(y) + alpha * w
    return float(value), gradient
