"""Values as JSON and arrays: what is storable comes back, everything else is refused with what to do."""

from dataclasses import dataclass

import numpy as np
import pytest

import danl
from danl.errors import InputError
from danl.methods import storable
from danl.storage.arrays import UnreadableError, from_npz, to_npz
from danl.storage.serialize import deserialize, from_file, plain, serialize, to_file
from tests.problems import random_problem


@storable
@dataclass(frozen=True)
class Halved:
    """The state of a method that is written outside of the package."""

    w: np.ndarray
    status: str | None = None
    steps: tuple[int, ...] = ()


@dataclass(frozen=True)
class Halving:
    """Halves the model in every exchange."""

    name: str = "halving"

    def begin(self, setup):
        return Halved(setup.w0)

    def plan(self, state, setup, turn):
        return setup.ask_everyone("loss", danl.protocol.messages.LossTask(turn.exchange, state.w))

    def absorb(self, state, replies, setup):
        return Halved(state.w / 2, None, (*state.steps, len(state.steps))), danl.methods.Info()


def test_a_method_of_ones_own_can_be_resumed(tmp_path):
    problem, arguments = random_problem(), {"method": Halving(), "w0": np.ones(7), "tol": 0.0}
    danl.solve(problem, checkpoint=tmp_path, max_rounds=3, **arguments)
    again = danl.solve(problem, resume=tmp_path, max_rounds=9, **arguments)
    whole = danl.solve(problem, max_rounds=9, **arguments)
    assert again.w.tobytes() == whole.w.tobytes()
    np.testing.assert_array_equal(whole.w, np.full(7, 0.5**10))


def test_what_is_not_storable_is_refused_with_what_to_do():
    @dataclass(frozen=True)
    class Other:
        w: int = 0

    with pytest.raises(InputError, match=r"a Other cannot be written down; put @storable \(danl.methods.storable\)"):
        serialize(Other(), {})
    with pytest.raises(InputError, match="a complex cannot be written down"):
        serialize([1j], {})
    with pytest.raises(InputError, match="Plain must be a dataclass"):
        storable(type("Plain", (), {}))
    with pytest.raises(InputError, match=r"there is a Halved in .*test_serialize already"):
        storable(dataclass(type("Halved", (), {"__module__": "elsewhere"})))
    storable(Halved)  # the same once more, as in a notebook


def test_values_come_back_as_they_were():
    state = Halved(np.arange(6.0).reshape(2, 3, order="F"), "x", (1, 2))
    values = {"a": state, "b": [None, True, -0.0, float("inf"), {3: np.array(2)}], "c": np.zeros((0, 4), dtype=bool)}
    got = from_file(to_file(values, magic="m", version=1), magic="m", version=1)
    assert got["a"].steps == (1, 2)
    assert got["a"].w.flags.f_contiguous == state.w.flags.f_contiguous
    np.testing.assert_array_equal(got["a"].w, state.w)
    assert repr(got["b"]) == repr(values["b"])
    assert (got["c"].shape, got["c"].dtype) == ((0, 4), bool)
    got["a"].w[0, 0] = 7.0  # it can be written to


@pytest.mark.parametrize("part", [[1], {"class": "Halved"}, {"what": 1}, {"tuple": [[]]}])
def test_other_texts_are_refused(part):
    with pytest.raises(UnreadableError, match="not a state's"):
        deserialize(part, {})


def test_entries_that_share_their_bytes_are_refused():
    """A small archive that would unpack to a large one: entries of its directory at one place."""
    data = to_npz({"a": np.zeros(1000), "b": np.zeros(1000)})
    begin = data.index(b"PK\x01\x02")
    entry = data[begin : data.index(b"PK\x01\x02", begin + 4)]
    many = data[:begin] + entry * 30 + data[-22:]
    end = bytearray(many[-22:])
    end[8:10] = end[10:12] = (30).to_bytes(2, "little")
    end[12:16] = (30 * len(entry)).to_bytes(4, "little")
    with pytest.raises(UnreadableError, match="longer than it is"):
        from_npz(many[:-22] + bytes(end), "thing")


def test_plain_values():
    assert plain({"a": (np.float64(1.5), np.arange(2)), 3: None}) == {"a": [1.5, [0, 1]], 3: None}
    assert plain([Halving()], otherwise=lambda value: value.name) == ["halving"]
    with pytest.raises(TypeError, match="Halving"):
        plain(Halving())
