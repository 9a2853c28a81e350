"""Workers on a Ray cluster: each reads its own file where it runs, and the rows never pass through this process.

Without an argument a cluster is started on this machine and ends with the run; with one, the cluster at that address is
used (`python examples/ray_cluster.py auto`). There every machine must have the files at the same paths. Ray listens on
every address of a machine: firewall it. It needs `pip install 'danl[ray]'`.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import danl

WORKERS = 4


def write_site(shard: danl.Shard, path: Path) -> None:
    """The rows of one site as a CSV file, the target in the last column."""
    columns = [f"x{number}" for number in range(shard.X.shape[1])]
    table = np.column_stack([shard.X.toarray(), shard.y])
    np.savetxt(path, table, delimiter=",", fmt="%g", header=",".join([*columns, "y"]), comments="")


def main() -> None:
    address = sys.argv[1] if len(sys.argv) > 1 else "local"
    data = danl.load_dataset("a1a")
    shards = danl.partition(data.X, data.y, workers=WORKERS, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"site-{number}.csv" for number in range(WORKERS)]
        for shard, file in zip(shards, files, strict=True):
            write_site(shard, file)
        sites = [danl.ShardReference(path=str(file), target_column="y") for file in files]
        engine = danl.engines.Ray(address=address, deadline=60)
        on_ray = danl.solve(danl.RemoteProblem(sites, alpha=1e-3), policy="coverage:psi=2", engine=engine)
    here = danl.solve(danl.Problem(shards, alpha=1e-3), policy="coverage:psi=2")
    for where, run in (("on Ray:", on_ray), ("in this process:", here)):
        print(f"{where:<16} {run.status}, {len(run.history)} exchanges, {run.history.total_bytes()[-1]:,} bytes")
    print(f"largest difference between the two models: {np.abs(on_ray.w - here.w).max():.1e}")


if __name__ == "__main__":
    main()
