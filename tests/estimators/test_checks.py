"""What scikit-learn asks of every estimator."""

import pytest
from sklearn.utils.estimator_checks import check_estimator

from danl import DANLClassifier, DANLRegressor

SKIPPED = {"check_array_api_input"}
"""Those that scikit-learn itself skips: SCIPY_ARRAY_API is not set."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator",
    [
        DANLClassifier(),
        DANLClassifier(workers=3, policy="coverage:psi=1"),
        DANLClassifier(workers=2, method="newton"),
        DANLRegressor(),
        DANLRegressor(workers=3, policy="coverage:psi=1"),
        DANLRegressor("poisson", workers=3),
        DANLRegressor("gamma", workers=3),
    ],
    ids=repr,
)
def test_every_check_of_scikit_learn_passes(estimator):
    results = check_estimator(estimator, on_skip=None, on_fail=None)
    failed = {each["check_name"]: each["exception"] for each in results if each["status"] == "failed"}
    assert failed == {}
    assert {each["check_name"] for each in results if each["status"] != "passed"} <= SKIPPED
    assert not any(each["expected_to_fail"] for each in results)
    assert sum(each["status"] == "passed" for each in results) > 50
