"""scikit-learn estimators: the pooled fit's coefficients from data that stays in shards, with standard errors."""

from danl.estimators.classifier import DANLClassifier
from danl.estimators.regressor import DANLRegressor

__all__ = ["DANLClassifier", "DANLRegressor"]
