"""What is proven of a run: Theorem 1, as printed and as its proof supports it, and the theorem of the default method.

    constants     the constants of Assumptions 1 to 4 for this problem and run
    theorem1      the conditions of Theorem 1, and the corrected theorem with its bound
    descent       the default's theorem: the objective never rises, and falls linearly
    certificate   `certify`: all of it on a run

"Conditions not met" is a proper answer: the theorem then says nothing about the run, and the measured distances stand
for themselves. The proofs are in docs/theory.md.
"""

from danl.theory.certificate import Certificate, certify
from danl.theory.constants import Constants, Deviations
from danl.theory.descent import Descent, ExactStep
from danl.theory.theorem1 import ALGORITHM_1, Condition, Corrected

__all__ = [
    "ALGORITHM_1",
    "Certificate",
    "Condition",
    "Constants",
    "Corrected",
    "Descent",
    "Deviations",
    "ExactStep",
    "certify",
]
