r"""How long the next step is: where curvature has fallen along the last step, it goes on falling along the next.

Far from the optimum Newton's steps for losses that flatten out, such as the logistic one, are too short: each is made
with the curvature where it begins, and there is less of it on the way. How much less is seen for nothing. With s the
last step and y the change of everyone's gradient along it, s.y is the curvature of s on average over the step, and

    here    a new whole Hessian H at its end says that s.Hs was left there
    before  the whole Hessian at its beginning said s.Hs there; at its end (s.y)^2 / s.Hs is left, if it falls evenly

in proportion, from end to end. The next step goes on along s by kappa = -grad.s / curvature of its beginning, and on
average over it the curvature is the one at the end of s times (end / average)^kappa. So the step is made longer, by

    here    (s.y / s.Hs)^kappa                  before  (s.Hs / s.y)^(1 + kappa): the pair (s, y) corrects H to s.y

as of Newton's method with an extrapolated Hessian, and never by more than LONGEST. Near the optimum kappa vanishes. A
step that was too long is refused by the losses, as any other.
"""

from __future__ import annotations

import math

from danl.protocol.messages import Array
from danl.server.curvature import Curvature
from danl.server.quasi_newton import QuasiNewton, WholeGradient

LONGEST = 2.0
"""The longest step, in steps of Newton's method."""


def length_from_null(explained: float) -> float:
    """The length of the first step of a logistic model with an intercept from the model without features.

    There g . H^-1 g is R^2, what least squares would explain of the classes. Newton's step has the covariance of all
    rows in it, S + p (1 - p) D D^T, where the log odds have that of the rows of a class, S, D being the difference of
    the classes' means: of normal rows it is short by 1 - R^2 along every column (Efron, "The efficiency of logistic
    regression compared to normal discriminant analysis", 1975).
    """
    return 1.0 / max(1.0 - explained, 1.0 / LONGEST)


def extrapolated_length(last: WholeGradient | None, curvature: Curvature, w: Array, gradient: Array, age: int) -> float:
    """The length of the step from w, in Newton's steps, where `last` is everyone's gradient at the model before it.

    `age` is 0 where the curvature's whole Hessian is that at w, 1 where it is that at the model before.
    """
    if last is None or age > 1 or not (isinstance(curvature, QuasiNewton) and curvature.whole):
        return 1.0
    step = w - last.w
    average, of_hessian = float(step @ (gradient - last.gradient)), float(step @ curvature.initial.times(step))
    if not (average > 0 and of_hessian > 0):
        return 1.0
    used = average if age else of_hessian
    onward = min(max(-float(gradient @ step) / used, 0.0), 1.0)
    base, exponent = (of_hessian / average, 1.0 + onward) if age else (average / of_hessian, onward)
    return min(math.pow(base, exponent), LONGEST) if base > 1 else 1.0
