"""Makes north.csv, south.csv and island.csv, which docs/hospitals.md uses: patients that nobody has met.

The files look as hospitals' files do: an identifier and a date that no model needs, words, missing values, columns in
another order at every site, a site of 15 patients, and a way of smoking that this site has not seen.

Run it with `python examples/hospitals/simulate.py`; the files in the repository are what it writes.
"""

import csv
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parent
SITES = {"north": 240, "south": 180, "island": 15}
COLUMNS = [
    "patient_id",
    "admitted",
    "age",
    "sex",
    "smoking",
    "bmi",
    "ward",
    "pressure",
    "readmitted",
    "visits",
    "months",
    "stay",
    "procedures",
    "infections",
]
ORDERS = {
    "north": COLUMNS,
    "south": ["patient_id", *sorted(COLUMNS[1:])],
    "island": [*reversed(COLUMNS[1:]), "patient_id"],
}
MISSING = {"north": "", "south": "NA", "island": ""}
SMOKING = ("never", "former", "current")


def patients(site: str, rng: np.random.Generator) -> dict[str, list]:
    """The columns of a site."""
    n, level = SITES[site], {"north": 0.0, "south": 0.25, "island": -0.2}[site]
    age, bmi = rng.integers(31, 90, n), np.round(rng.gamma(30, 0.9, n), 1)
    sex = rng.choice(["f", "m"], n)
    smoking = rng.choice(SMOKING, n, p=(0.5, 0.3, 0.2) if site != "island" else (0.7, 0.0, 0.3))
    smokes = np.select([smoking == "former", smoking == "current"], [0.2, 0.6], 0.0)
    eta = 0.03 * (age - 60) + smokes + 0.8 * np.log(bmi / 27) + level + 0.2 * (sex == "m")
    months, procedures = rng.integers(3, 25, n), rng.integers(1, 9, n)
    wards = {"north": 6, "south": 5, "island": 2}[site]
    days = np.datetime64("2025-01-01") + rng.integers(0, 365, n)
    return {
        "patient_id": [f"{site[0].upper()}-{number:05d}" for number in rng.permutation(90_000)[:n] + 10_000],
        "admitted": [str(day) for day in days],
        "age": age.tolist(),
        "sex": sex.tolist(),
        "smoking": smoking.tolist(),
        "bmi": [None if rng.random() < 0.06 else value for value in bmi.tolist()],
        "ward": [f"{site[0].upper()}{number}" for number in rng.integers(1, wards + 1, n)],
        "pressure": np.round(128 + 9 * eta + rng.normal(0, 11, n)).astype(int).tolist(),
        "readmitted": np.where(rng.random(n) < 1 / (1 + np.exp(1.1 - eta)), "yes", "no").tolist(),
        "visits": rng.poisson(months * 0.15 * np.exp(0.6 * eta) * rng.gamma(2.0, 0.5, n)).tolist(),
        "months": months.tolist(),
        "stay": np.round(np.maximum(rng.gamma(1.6, np.exp(1.2 + 0.5 * eta) / 1.6), 0.1), 1).tolist(),
        "procedures": procedures.tolist(),
        "infections": rng.binomial(procedures, 1 / (1 + np.exp(2.2 - 0.7 * eta))).tolist(),
    }


def main() -> None:
    """Write the files."""
    rng = np.random.default_rng(20)
    for site in SITES:
        columns = patients(site, rng)
        with (FOLDER / f"{site}.csv").open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(ORDERS[site])
            for values in zip(*(columns[name] for name in ORDERS[site]), strict=True):
                rows.writerow([MISSING[site] if value is None else value for value in values])


if __name__ == "__main__":
    main()
