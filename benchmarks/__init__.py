"""Measurements that stand in the documents; `make bench` makes those of docs/benchmarks.md again."""

THREADS = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "POLARS_MAX_THREADS",
        "VECLIB_MAXIMUM_THREADS",
    ),
    "1",
)
"""One thread for everyone: in the environment before numpy is imported, which is why it stands here."""
