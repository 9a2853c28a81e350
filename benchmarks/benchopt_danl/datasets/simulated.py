"""Rows of a logistic model with correlated features, made from benchopt's seed (`benchopt run --seed`)."""

import numpy as np
from benchopt import BaseDataset
from scipy.special import expit


class Dataset(BaseDataset):
    """Features with correlation 0.5^|j - k|, a normal model, and targets drawn from it."""

    name = "simulated"

    parameters = {"n_samples": [2000], "n_features": [50], "workers": [10]}  # noqa: RUF012 (benchopt's interface)
    test_parameters = {"n_samples": [60], "n_features": [5], "workers": [3]}  # noqa: RUF012

    def get_data(self):
        """The arguments of `Objective.set_data`."""
        rng = np.random.default_rng(self.get_seed(use_dataset=True, use_repetition=True))
        X = rng.normal(size=(self.n_samples, self.n_features))
        for column in range(1, self.n_features):
            X[:, column] = 0.5 * X[:, column - 1] + np.sqrt(0.75) * X[:, column]
        scores = X @ rng.normal(size=self.n_features)
        y = (rng.random(self.n_samples) < expit(scores)).astype(float)
        return {"X": X, "y": y, "workers": self.workers}
