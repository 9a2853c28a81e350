"""Functions of SciPy without their packages: the very same, whoever imports the packages and when."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.linalg.lapack
import scipy.special

from danl import _scipy

NAMES = ("dpotrf", "dpotrs", "dpptrf")
LATER = """
import sys
{first}
from danl import _scipy
import scipy.linalg.lapack, scipy.special
import numpy as np
z = np.linspace(-40.0, 40.0, 1001)
assert (_scipy.expit(z) == scipy.special.expit(z)).all()
A = np.cov(np.random.default_rng(0).normal(size=(5, 40)))
assert (_scipy.dpotrf(A)[0] == scipy.linalg.lapack.dpotrf(A)[0]).all()
assert (scipy.linalg.cholesky(A) == np.triu(_scipy.dpotrf(A)[0])).all()
print("same")
"""


@pytest.mark.parametrize("first", ["", "import scipy.linalg, scipy.special", "import scipy.special"])
def test_the_packages_may_come_before_or_after(first):
    command = [sys.executable, "-c", LATER.format(first=first)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert (done.stdout, done.stderr) == ("same\n", "")


def test_a_package_that_is_there_is_used():
    assert _scipy.extension("scipy.linalg", "_flapack") is None
    assert _scipy.functions("scipy.linalg", "_flapack", "scipy.linalg.lapack", *NAMES) == tuple(
        getattr(scipy.linalg.lapack, name) for name in NAMES
    )


@pytest.mark.parametrize(("package", "name"), [("scipy.absent", "_flapack"), ("scipy.fftpack", "_absent")])
def test_another_scipy_without_the_module_has_the_public_names(package, name):
    assert _scipy.extension(package, name) is None
    (expit,) = _scipy.functions(package, name, "scipy.special", "expit")
    assert expit is scipy.special.expit


def test_a_module_that_lacks_a_function_is_not_used(monkeypatch):
    monkeypatch.setattr(_scipy, "extension", lambda package, name: np)
    assert _scipy.functions("scipy.special", "_ufuncs", "scipy.special", "expit", "xlogy") == (
        scipy.special.expit,
        scipy.special.xlogy,
    )
