"""`danl flower node`: its options, and what is loaded before there is a message. Nothing is started here."""

import subprocess
import sys

import pytest

from danl.errors import InputError
from danl.federation.node import value_of, with_defaults


def test_a_port_of_its_own_on_this_host_unless_one_is_given():
    made = with_defaults(["--superlink", "fl.example.org:9092"])
    assert made[:2] == ["--superlink", "fl.example.org:9092"]
    assert value_of("--host", made) == "127.0.0.1"
    assert 1024 <= int(value_of("--port", made)) < 65536
    assert with_defaults([]) != with_defaults([])
    for words in (["--port", "9095", "--host", "0.0.0.0"], ["--port=9095", "--host=0.0.0.0"]):
        assert with_defaults(words) == words


def test_values_of_options_are_found_as_argparse_finds_them():
    assert value_of("--port", ["--port", "1", "--port=2"]) == "2"
    assert value_of("--port", ["--ports", "1"]) is None
    assert value_of("--port", ["--port"]) is None


@pytest.mark.parametrize("words", [["--isolation", "subprocess"], ["--isolation=process"]])
def test_the_isolation_is_ours(words):
    with pytest.raises(InputError, match="--isolation"):
        with_defaults(words)


def test_an_answer_loads_nothing_that_was_not_loaded_before(tmp_path):
    """What a fork would load, every fork would load."""
    pytest.importorskip("flwr", reason="Flower is not installed: pip install danl[flower]")
    (tmp_path / "north.csv").write_text("age,ill\n" + "".join(f"{20 + row % 50},{row % 2}\n" for row in range(200)))
    code = f"""
import importlib, sys
from danl.federation.node import LOADED, load
for module in LOADED:
    importlib.import_module(module)
lean = set(sys.modules)
load()
before = set(sys.modules)
import numpy as np
from pathlib import Path
from danl.engines.flower.kept_rows import KeptRows
from danl.engines.flower.opening import Opening
from danl.engines.flower.site import Site
from danl.objective.problem import RemoteProblem
from danl.objective.regions import Regions
from danl.protocol.messages import Failure, GradientTask, HessianTask
from danl.protocol.wire import decode, encode
file = {str(tmp_path / "north.csv")!r}
site = Site.from_config({{"name": "north", "data": file, "target-column": "ill", "keep-rows": False}})
site.shard_info("logistic")
for _ in range(2):  # a copy is written, and read
    KeptRows(site.reference.path, Path({str(tmp_path / "copies")!r}), 0.0, -1.0).read(site.reference.read, "")
terms = Opening.of(RemoteProblem(alpha=1e-3, feature_names=["age"]), regions=Regions.make(1, 1), policy=None, seed=0)
for task in (HessianTask(0, np.zeros(1)), GradientTask(1, np.ones(1))):
    reply = decode(site.answer(encode(task), terms.to_json(0)), most_bytes=10**6)
    assert not isinstance(reply, Failure), reply
print(sorted(set(sys.modules) - before))
for heavy in ("sklearn", "matplotlib", "pandas", "statsmodels", "ray", "scipy.stats", "scipy.optimize"):
    assert heavy not in lean, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"
