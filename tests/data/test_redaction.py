"""An error at a site tells its place and no value: malformed files, and loaders that fail."""

import pytest
from tests.sites import MALFORMED, TOKEN, Malformed, chain, leaks, parquet_files, write

import danl
from danl.data.redaction import redacted
from danl.engines.ray.actor import WorkerActor
from danl.errors import InputError
from danl.protocol.messages import Failure


def reference_of(case, folder):
    return danl.ShardReference(path=str(write(case, folder)), **case.options)


@pytest.fixture(
    params=[*MALFORMED, "text.parquet", "null.parquet", "label.parquet"], ids=lambda case: getattr(case, "name", case)
)
def case(request, tmp_path):
    if isinstance(request.param, Malformed):
        if request.param.name.endswith(".parquet"):
            pytest.importorskip("pyarrow")
        return request.param
    pytest.importorskip("pyarrow")
    return next(made for made in parquet_files(tmp_path) if made.name == request.param)


def test_there_are_twenty_malformed_files_and_each_has_a_secret():
    assert len(MALFORMED) >= 20
    for case in MALFORMED:
        text = case.text if isinstance(case.text, bytes) else case.text.encode()
        if not case.name.startswith("torn.csv"):  # packed
            assert leaks(text.decode(errors="replace")), case.name


def test_a_run_by_reference_tells_the_place(case, tmp_path):
    reference = reference_of(case, tmp_path)
    with pytest.raises(InputError) as raised:
        danl.solve(danl.RemoteProblem([reference], loss=case.loss, alpha=1.0))
    assert leaks(chain(raised.value)) == []
    assert case.says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_actor_tells_the_place(case, tmp_path):
    reported = WorkerActor(3, reference_of(case, tmp_path)).shard_info(case.loss, None)
    if isinstance(reported, Failure):
        assert leaks(reported.detail) == []
        assert case.says in reported.detail
    else:
        assert case.loss in ("poisson", "multinomial:classes=3")  # rows that can be read: the loss does not take them


def test_the_owner_of_a_file_still_sees_the_value(tmp_path):
    path = write(next(case for case in MALFORMED if case.name == "word.csv"), tmp_path)
    with pytest.raises(InputError, match=TOKEN):
        danl.load_dataset(path)
    with pytest.raises(InputError, match=TOKEN):
        danl.ShardReference(path=str(path)).read()


def raising(error):
    def load():
        raise error

    return load


def wrong_frame():
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"id": [TOKEN, TOKEN], "age": [1, 2], "ill": [0, 1]})


LOADERS = {
    "its own error": raising(OSError(f"no patient {TOKEN}")),
    "a key": raising(KeyError(TOKEN)),
    "an input error of its own": raising(InputError(f"patient {TOKEN}")),
    "text": lambda: ([[TOKEN, 1.0]], [1.0]),
    "text in objects": lambda: (__import__("numpy").array([[TOKEN, 1.0]], dtype=object), [1.0]),
    "a label": lambda: ([[1.0, 2.0]], [TOKEN]),
    "another file": lambda: danl.load_dataset("/nowhere/x/patients.csv"),
    "nothing of use": lambda: TOKEN,
    "a frame": wrong_frame,
    "a frame and labels": lambda: (wrong_frame()[["id", "age"]], [0, 1]),
}


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
def test_a_loader_tells_type_and_place(load):
    reference = danl.ShardReference(load=load, name="north")
    with pytest.raises(InputError, match="shards: worker 0 cannot use its rows where it runs: ") as raised:
        danl.solve(danl.RemoteProblem([reference], alpha=1.0))
    assert leaks(chain(raised.value)) == []
    assert leaks(WorkerActor(0, reference).shard_info(True, None).detail) == []


def test_the_line_of_a_loader_is_told():
    def load():
        return int(TOKEN)

    line = load.__code__.co_firstlineno + 1
    detail = WorkerActor(0, danl.ShardReference(load=load)).shard_info(True, None).detail
    assert detail == f"ValueError at {__name__}:{line}; its text stays at the site"


def test_what_danl_says_of_settings_is_told_whole():
    with pytest.raises(InputError) as raised:
        danl.engines.Local(dropout=2)
    assert redacted(raised.value) == str(raised.value) == "dropout=2: must be a number of at least 0 and below 1"


def test_an_error_in_an_exchange_tells_its_place(monkeypatch):
    X, y = [[1.0, 2.0], [2.0, 1.0], [0.5, 1.0]], [0.0, 1.0, 1.0]
    problem = danl.RemoteProblem([danl.ShardReference(load=lambda: (X, y))], alpha=1.0)

    def broken(self, task):
        raise ValueError(f"patient {TOKEN}")

    monkeypatch.setattr("danl.worker.worker.Worker.answer", broken)
    result = danl.solve(problem, engine=danl.engines.Local(batched=False), max_rounds=3)
    assert result.failures
    assert all("ValueError at " in failure.detail and not leaks(failure.detail) for failure in result.failures)
