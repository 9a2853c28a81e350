"""benchmarks/benchopt_danl: its files, its objective against danl's, and a run where benchopt is installed."""

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import danl
from tests.problems import random_shards

FOLDER = Path(__file__).parents[1] / "benchmarks" / "benchopt_danl"
METHODS = {"Objective": "set_data get_objective evaluate_result", "Dataset": "get_data"}
METHODS["Solver"] = "set_objective run get_result"
CLASSES = {
    "objective.py": "Objective",
    "datasets/a1a.py": "Dataset",
    "datasets/simulated.py": "Dataset",
    "solvers/danl_methods.py": "Solver",
    "solvers/lbfgs.py": "Solver",
}


def logistic():
    """The benchmark's own formula; the file imports nothing of benchopt."""
    spec = importlib.util.spec_from_file_location("benchopt_logistic", FOLDER / "benchmark_utils" / "logistic.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("file", "name"), CLASSES.items())
def test_files_define_what_benchopt_looks_for(file, name):
    tree = ast.parse((FOLDER / file).read_text(encoding="utf-8"))
    (found,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    assert [ast.unparse(base) for base in found.bases] == [f"Base{name}"]
    assert {node.name for node in found.body if isinstance(node, ast.FunctionDef)} >= set(METHODS[name].split())


def test_every_file_of_a_dataset_or_solver_is_looked_at():
    found = {
        path.relative_to(FOLDER).as_posix() for part in ("datasets", "solvers") for path in FOLDER.glob(f"{part}/*.py")
    }
    assert found | {"objective.py"} == set(CLASSES)


@pytest.mark.parametrize("as_sparse", [False, True])
def test_the_formula_is_that_of_a_problem_weighted_by_samples(as_sparse):
    shards = random_shards(sizes=(9, 14, 5), d=4, as_sparse=as_sparse)
    X = (sparse.vstack if as_sparse else np.vstack)([shard.X for shard in shards])
    y = np.concatenate([shard.y for shard in shards])
    problem = danl.Problem(shards, alpha=0.3, weighting="samples")
    for w in (np.zeros(4), np.array([1.0, -2.0, 0.5, 30.0])):
        value, gradient = logistic().value_and_gradient(X, y, 0.3, w)
        expected, expected_gradient = problem.value_and_gradient(w)
        assert value == pytest.approx(expected, rel=1e-12)
        assert gradient == pytest.approx(expected_gradient, rel=1e-10, abs=1e-12)


@pytest.mark.slow
def test_benchopt_runs_it(tmp_path):
    pytest.importorskip("benchopt", reason="benchopt is not installed: pip install benchopt")
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    folder, output = tmp_path / "benchopt_danl", tmp_path / "result.parquet"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("__cache__", "__pycache__", "outputs"))
    command = [sys.executable, "-m", "benchopt", "run", str(folder), "--no-plot", "--seed", "0", "-n", "6", "-r", "1"]
    command += ["-d", "simulated[n_samples=60,n_features=4,workers=3]", "-o", "*[alpha=0.01]", "--output", str(output)]
    path = os.pathsep.join([str(Path(danl.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = pandas.read_parquet(output)
    methods = {f"danl[method={method}]" for method in ("danl", "newton", "fednl", "gd")}
    assert set(rows["solver_name"]) == methods | {"L-BFGS[memory=10]"}
    first = rows[(rows["solver_name"] == "danl[method=newton]") & (rows["stop_val"] == 0)]
    assert first["objective_value"].tolist() == pytest.approx([np.log(2)])
    best = rows.groupby("solver_name")["objective_value"].min()
    assert best["danl[method=danl]"] == pytest.approx(best["danl[method=newton]"], rel=1e-6)
    assert (best["danl[method=newton]"] <= best + 1e-6).all()
