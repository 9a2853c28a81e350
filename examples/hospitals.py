"""Ten hospitals fit one logistic regression without pooling their rows.

The hospitals differ in size and in how many of their patients come back within a month. Three have slow machines,
which train a part of the model in each round, and every hospital misses an exchange now and then. Three ways to one
model:

    pooled      all rows in one place, scikit-learn's LogisticRegression: what cannot be had
    federated   danl's DANLClassifier, one worker per hospital
    averaged    each hospital fits its own rows, and the coefficients are averaged by rows: what is often done

Run it with `python examples/hospitals.py`. The patients are made up: the names of the features are for reading only.
"""

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import train_test_split

import danl

FEATURES = ["age", "bmi", "blood_pressure", "glucose", "creatinine", "smoker", "prior_stays", "days_in_ward"]
HOSPITALS = 10
SLOW = (0, 1, 2)  # the three largest
C = 1.0  # scikit-learn's default penalty, for all three


def patients(seed: int = 7) -> tuple[pd.DataFrame, pd.Series]:
    """Standardised features, and whether the patient came back within a month; one in five did."""
    X, y = make_classification(
        n_samples=6000, n_features=len(FEATURES), n_informative=5, n_redundant=0, class_sep=0.6, weights=[0.8],
        flip_y=0.1, random_state=seed,
    )  # fmt: skip
    frame = pd.DataFrame(X, columns=FEATURES)
    return (frame - frame.mean()) / frame.std(), pd.Series(y, name="readmitted")


def hospital_of_each_row(X: pd.DataFrame, y: pd.Series, seed: int = 0) -> np.ndarray:
    """A skewed division: each outcome's patients in shares drawn from a Dirichlet; hospital 0 is the largest."""
    shards = danl.partition(X.to_numpy(), y.to_numpy(), workers=HOSPITALS, scheme="dirichlet:alpha=0.7", seed=seed)
    shards.sort(key=lambda shard: -shard.n_rows)
    sites = np.empty(len(y), dtype=int)
    for number, shard in enumerate(shards):
        sites[shard.rows] = number
    return sites


def federated(X: pd.DataFrame, y: pd.Series, sites: np.ndarray, C: float) -> danl.DANLClassifier:
    """One worker per hospital: slow ones train what they manage in a second, all miss one exchange in five."""
    machines = [danl.Profile(rows_per_second=1_500 if site in SLOW else 20_000) for site in range(HOSPITALS)]
    model = danl.DANLClassifier(
        C=C,
        policy=danl.policies.ResourceAware(machines, deadline=1.0),
        engine="local:dropout=0.2,seed=1",
    )
    return model.fit(X, y, groups=sites)


def averaged(X: pd.DataFrame, y: pd.Series, sites: np.ndarray) -> LogisticRegression:
    """A fit at every hospital that has seen both outcomes, averaged by rows."""
    fits, rows = [], []
    for site in range(HOSPITALS):
        here = sites == site
        if y[here].nunique() == 2:
            fits.append(LogisticRegression(C=C, solver="newton-cholesky", tol=1e-10).fit(X[here], y[here]))
            rows.append(here.sum())
    model = fits[0]  # a model to put the averages into
    model.coef_ = np.average([fit.coef_ for fit in fits], axis=0, weights=rows)
    model.intercept_ = np.average([fit.intercept_ for fit in fits], axis=0, weights=rows)
    return model


def main() -> None:
    console = Console(width=100)
    X, y = patients()
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=0, stratify=y)
    sites = hospital_of_each_row(X, y)

    hospitals = Table(title="The hospitals", box=None)
    for column in ("hospital", "rows", "readmitted", "machine"):
        hospitals.add_column(column, justify="right")
    for site in range(HOSPITALS):
        here = sites == site
        hospitals.add_row(str(site), str(here.sum()), f"{y[here].mean():.1%}", "slow" if site in SLOW else "")
    console.print(hospitals)

    pooled = LogisticRegression(C=C, solver="newton-cholesky", tol=1e-12).fit(X, y)
    ours = federated(X, y, sites, C)
    local = averaged(X, y, sites)

    table = Table(title="\nOne model of all patients", box=None)
    table.add_column("fit")
    for column in ("off the pooled", "exchanges", "bytes", "test AUC", "test log loss"):
        table.add_column(column, justify="right")
    for name, model, exchanges, moved in (
        ("pooled", pooled, "-", f"{8 * (X.size + y.size):,}"),
        ("federated", ours, str(ours.n_iter_), f"{ours.bytes_up_ + ours.bytes_down_:,}"),
        ("averaged", local, "1", f"{8 * HOSPITALS * (len(FEATURES) + 1):,}"),
    ):
        off = max(np.abs(model.coef_ - pooled.coef_).max(), np.abs(model.intercept_ - pooled.intercept_).max())
        chance = model.predict_proba(X_test)[:, 1]
        scores = (f"{roc_auc_score(y_test, chance):.4f}", f"{log_loss(y_test, chance):.4f}")
        table.add_row(name, f"{off:.1e}", exchanges, moved, *scores)
    console.print(table)
    last = ours.history_[-1]
    console.print(
        f"\n{len(ours.result_.failures)} replies did not come, and a region was trained by as few as "
        f"{last.min_coverage} of {HOSPITALS} hospitals in a round.\n"
    )

    without_penalty = federated(X, y, sites, C=np.inf)  # for intervals that mean what they say
    console.print(str(without_penalty.summary()), highlight=False, markup=False)


if __name__ == "__main__":
    main()
