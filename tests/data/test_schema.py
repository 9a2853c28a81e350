"""Columns of sites are matched by name: the pooled model whatever their order, or a refusal that names them."""

import numpy as np
import pytest
from scipy import sparse
from tests.sites import NAMES, permuted_files, pooled, rows

import danl
from danl.data.schema import agreed, in_order, labelled
from danl.errors import InputError


def solved(paths, engine="local", **options):
    references = [danl.ShardReference(path=str(path), **options) for path in paths]
    return danl.solve(danl.RemoteProblem(references, alpha=1e-3, weighting="samples"), engine=engine, tol=1e-11)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_permuted_columns_give_the_pooled_model(suffix, tmp_path):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    paths, problem = permuted_files(tmp_path, suffix)
    result = solved(paths, target_column="ill")
    assert result.status == "converged"
    assert np.abs(result.w - pooled(problem)).max() <= 1e-8
    assert result.feature_names == NAMES
    assert result.settings["feature_names"] == list(NAMES)


def test_the_order_can_be_asked_for(tmp_path):
    paths, problem = permuted_files(tmp_path)
    references = [danl.ShardReference(path=str(path), target_column="ill") for path in paths]
    asked = ("salt", "age", "pulse", "bmi")
    remote = danl.RemoteProblem(references, alpha=1e-3, weighting="samples", feature_names=asked)
    result = danl.solve(remote, tol=1e-11)
    assert result.feature_names == asked
    expected = dict(zip(NAMES, pooled(problem), strict=True))
    np.testing.assert_allclose(result.w, [expected[name] for name in asked], atol=1e-8)
    with pytest.raises(InputError, match=r"are not those of feature_names: worker 0 \(site-0.csv\) lacks 'height'"):
        danl.solve(danl.RemoteProblem(references, alpha=1e-3, feature_names=(*asked, "height")))


def test_without_a_target_column_other_last_columns_are_refused(tmp_path):
    paths, _ = permuted_files(tmp_path)
    with pytest.raises(InputError, match=r"worker 1 .*site-1.csv: .*without target_column it is the last column"):
        solved(paths)
    message = r"the target must be the same column at every site, and is 'ill' at worker 0 \(site-0.csv\); 'pulse' at"
    references = [danl.ShardReference(path=str(path), target="real") for path in paths]
    with pytest.raises(InputError, match=message):
        danl.solve(danl.RemoteProblem(references, loss="squared", alpha=1.0))


def renamed(path, old, new):
    header, _, body = path.read_text().partition("\n")
    path.write_text(header.replace(old, new) + "\n" + body)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("bmi", "BMI", r"worker 1 \(site-1.csv\) lacks 'bmi' and has 'BMI'; give every site the same columns"),
        ("bmi", "age", "columns 3 and 4 have the same name"),
        ("ill", "sick", "target_column='ill': is no column of site-1.csv"),
    ],
)
def test_other_names_are_refused_by_site_and_column(old, new, message, tmp_path):
    paths, _ = permuted_files(tmp_path)
    renamed(paths[1], old, new)
    with pytest.raises(InputError, match=message):
        solved(paths, target_column="ill")


def test_an_extra_and_a_missing_column_are_refused(tmp_path):
    paths, _ = permuted_files(tmp_path)
    lines = paths[2].read_text().splitlines()
    paths[2].write_text("\n".join([lines[0] + ",height", *(line + ",1" for line in lines[1:])]) + "\n")
    with pytest.raises(InputError, match=r"worker 2 \(site-2.csv\) has 'height'"):
        solved(paths, target_column="ill")
    paths[2].write_text("\n".join(line.rpartition(",")[0] for line in lines) + "\n")
    with pytest.raises(InputError, match=r"worker 2 \(site-2.csv\) lacks 'bmi'"):
        solved(paths, target_column="ill")


def test_targets_of_other_names_are_refused(tmp_path):
    paths, _ = permuted_files(tmp_path)
    renamed(paths[1], "ill", "sick")
    names = ["ill", "sick", "ill"]
    references = [danl.ShardReference(path=str(p), target_column=t) for p, t in zip(paths, names, strict=True)]
    with pytest.raises(InputError, match=r"'ill' at worker 0 \(site-0.csv\); 'sick' at worker 1 \(site-1.csv\)"):
        danl.solve(danl.RemoteProblem(references, alpha=1.0))


def test_names_and_no_names_are_refused(tmp_path):
    paths, _ = permuted_files(tmp_path)
    X, y = rows(20)
    references = [
        danl.ShardReference(path=str(paths[0]), target_column="ill"),
        danl.ShardReference(load=lambda: (X, y)),
    ]
    message = r"the columns of worker 1 have no names, and those of worker 0 \(site-0.csv\) do"
    with pytest.raises(InputError, match=message):
        danl.solve(danl.RemoteProblem(references, alpha=1.0))


def test_a_table_of_counted_columns_has_no_names(tmp_path):
    (tmp_path / "a.csv").write_text("0,1,2\n1,2,0\n2,1,1\n")
    (tmp_path / "b.svm").write_text("0 1:1 2:2\n1 1:2 2:1\n")
    counted = danl.ShardReference(path=str(tmp_path / "a.csv")).read()
    assert counted.feature_names is None
    references = [danl.ShardReference(path=str(tmp_path / name)) for name in ("a.csv", "b.svm")]
    assert danl.solve(danl.RemoteProblem(references, alpha=1.0)).feature_names is None


# --- data frames ---


def frames():
    pandas = pytest.importorskip("pandas")
    X, y = rows()
    whole = pandas.DataFrame(X, columns=list(NAMES)).assign(ill=y)
    parts = [whole.iloc[own] for own in np.array_split(np.arange(len(whole)), 3)]
    return [
        parts[0],
        parts[1][["ill", "salt", "bmi", "age", "pulse"]],
        parts[2][["pulse", "age", "ill", "salt", "bmi"]],
    ]


LOADS = {
    "X and y": lambda part: (part[[name for name in part.columns if name != "ill"]], part["ill"]),
    "arrays of y": lambda part: (part[[name for name in part.columns if name != "ill"]], part["ill"].to_numpy()),
    "all in one": lambda part: part,
    "a shard": lambda part: danl.Shard.of(part.drop(columns="ill"), part["ill"]),
}


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_data_frames_of_a_loader_have_names(load, tmp_path):
    references = [danl.ShardReference(load=lambda part=part: load(part), target_column="ill") for part in frames()]
    result = danl.solve(danl.RemoteProblem(references, alpha=1e-3, weighting="samples"), tol=1e-11)
    _, problem = permuted_files(tmp_path)
    assert result.status == "converged"
    assert np.abs(result.w - pooled(problem)).max() <= 1e-8
    assert result.feature_names == NAMES


def test_shards_in_memory_are_matched_as_well(tmp_path):
    shards = [danl.Shard.of(part.drop(columns="ill"), part["ill"]) for part in frames()]
    problem = danl.Problem(shards, alpha=1e-3, weighting="samples")
    assert problem.feature_names == NAMES
    assert problem.shards[0] is shards[0]
    result = danl.solve(problem, tol=1e-11)
    _, other = permuted_files(tmp_path)
    assert np.abs(result.w - pooled(other)).max() <= 1e-8
    with pytest.raises(InputError, match=r"worker 1 \(worker-0\) lacks 'age' and has 'Age'"):
        danl.Problem(
            [shards[0], danl.Shard.of(frames()[1].rename(columns={"age": "Age"}).drop(columns="ill"), shards[1].y)]
        )


def test_names_go_with_the_rows(tmp_path):
    (tmp_path / "x.csv").write_text("age,bmi,ill\n" + "\n".join(f"{k},{k * k % 7},{k % 2}" for k in range(20)))
    data = danl.load_dataset(tmp_path / "x.csv")
    shards = danl.partition(data.X, data.y, workers=3, feature_names=data.feature_names)
    assert [shard.feature_names for shard in shards] == [("age", "bmi")] * 3
    assert danl.solve(danl.Problem(shards, alpha=1.0)).feature_names == ("age", "bmi")
    assert danl.solve(danl.Problem(danl.partition(data.X, data.y, workers=3), alpha=1.0)).feature_names is None
    with pytest.raises(InputError, match="one for each of the 2 columns of X, found 1"):
        danl.partition(data.X, data.y, workers=3, feature_names=["age"])
    with pytest.raises(InputError, match="both called 'age'"):
        danl.partition(data.X, data.y, workers=3, feature_names=["age", "age"])


def test_sparse_columns_are_brought_into_order():
    X = sparse.random(30, 4, density=0.4, format="csr", random_state=0)
    shard = danl.Shard.of(X[:, [2, 0, 3, 1]], np.zeros(30), feature_names=[NAMES[k] for k in (2, 0, 3, 1)])
    ordered = in_order(shard, NAMES)
    assert ordered.feature_names == NAMES
    np.testing.assert_array_equal(ordered.X.toarray(), X.toarray())
    assert ordered.X.has_sorted_indices
    assert in_order(ordered, NAMES) is ordered


def test_other_widths_are_refused_by_site(tmp_path):
    (tmp_path / "a.svm").write_text("0 1:1 2:2\n1 1:2 2:1\n")
    (tmp_path / "b.svm").write_text("0 1:1 3:2\n1 1:2 2:1\n")
    references = [danl.ShardReference(path=str(tmp_path / name)) for name in ("a.svm", "b.svm")]
    with pytest.raises(InputError, match=r"found 2 at worker 0 \(a.svm\) and 3 at worker 1 \(b.svm\); pass n_features"):
        danl.solve(danl.RemoteProblem(references, alpha=1.0))


def test_many_differences_are_cut_short():
    many = tuple(f"column-{number}" for number in range(40))
    columns = [(many, "y"), *[((*many[:-1], f"other-{number}"), "y") for number in range(9)]]
    with pytest.raises(InputError, match=r"worker 5 .*; and 4 more sites;") as raised:
        agreed(columns, labelled([f"site {number}" for number in range(10)]))
    assert "worker 6" not in str(raised.value)
    with pytest.raises(InputError, match="and 35 more"):
        agreed([(many, "y"), (("z",), "y")], ["a", "b"])
