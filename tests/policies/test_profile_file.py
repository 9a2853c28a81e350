"""Profiles from a CSV file, and what is said of one that is wrong."""

import math

import pytest

from danl.errors import InputError
from danl.policies import Profile, ResourceAware, make_policy, read_profiles
from danl.policies.profile_file import as_plain_data, check_count

SLOW, FAST = Profile(1000, 2e4, 1e5), Profile(20000, 1e6, 1e6, 5e6)
FLEET = "workers,rows_per_second,uplink,downlink,memory\n2,1000,2e4,1e5,\n1,20000,1e6,1e6,5e6\n"


@pytest.mark.parametrize(
    ("text", "profiles"),
    [
        (FLEET, [SLOW, SLOW, FAST]),
        ("\ufeff" + FLEET.replace("\n", "\r\n"), [SLOW, SLOW, FAST]),
        ("\n" + FLEET.replace("\n2,", "\n\n  \n2,"), [SLOW, SLOW, FAST]),
        (" uplink , memory\n 5 , 1e3 \n", [Profile(uplink=5, memory=1e3)]),
        ("uplink,memory\n,\n7,\n", [Profile(), Profile(uplink=7)]),  # of commas alone: no limits
        ("workers\n3\n", [Profile()] * 3),
        ("memory\ninf\n", [Profile()]),
        ('"uplink","memory"\n"5",""\n', [Profile(uplink=5)]),
    ],
)
def test_files(tmp_path, text, profiles):
    path = tmp_path / "fleet.csv"
    path.write_text(text, encoding="utf-8", newline="")
    assert read_profiles(path) == profiles
    assert read_profiles(str(path)) == profiles


ALL = "rows_per_second, uplink, downlink, memory, workers"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f": is empty; write a header of {ALL} and a line a worker"),
        ("uplink\n", f": has a header and no line after it; write a header of {ALL} and a line a worker"),
        (
            "uplink,speed\n1,2\n",
            f", line 1: 'speed' is no column; the first line must name some of {ALL}",
        ),
        (
            "1000,2000\n",
            f", line 1: '1000' is no column; the first line must name some of {ALL}",
        ),
        ("uplink,memory,uplink\n1,2,3\n", ", line 1: the column 'uplink' is there twice; leave one of them out"),
        ("uplink,memory\n1,2\n\n3\n", ", line 4: must have 2 cells, as the header, not 1; leave none out"),
        ("uplink,memory\n1,2,3\n", ", line 2: must have 2 cells, as the header, not 3; leave none out"),
        *(
            (
                f"uplink,memory\n1,2\n{value},2\n",
                f", line 3: uplink={value!r}: must be a number above 0; leave the cell empty for no limit",
            )
            for value in ("fast", "0", "-1", "nan", "1_000", "1 000")
        ),
        *(
            (
                f"uplink,workers\n1,{value}\n",
                f", line 2: workers={value!r}: must be a whole number from 1 on, 10,000,000 in all at most; "
                "write for how many workers the line stands",
            )
            for value in ("", "0", "-1", "1.5", "ten", "9" * 12, "10000001")
        ),
        (
            "workers\n10000000\n1\n",
            ", line 3: workers='1': must be a whole number from 1 on, 10,000,000 in all at most; "
            "write for how many workers the line stands",
        ),
    ],
)
def test_wrong_files(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet.csv").write_text(text)
    with pytest.raises(InputError) as error:
        read_profiles("fleet.csv")
    assert str(error.value) == f"profiles='fleet.csv'{message}"


def test_files_that_cannot_be_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bytes.csv").write_bytes(b"uplink\n\xff\xfe\n")
    unread = "cannot be read ("
    for name, why in (("none.csv", unread + "No such file"), (".", unread), ("bytes.csv", "is no CSV")):
        with pytest.raises(InputError) as error:
            read_profiles(name)
        assert str(error.value).startswith(f"profiles={name!r}: {why}")
        assert str(error.value).endswith(f"write a header of {ALL} and a line a worker")


def test_the_number_of_workers():
    check_count("fleet.csv", [SLOW] * 3, 3)
    with pytest.raises(InputError) as error:
        check_count("fleet.csv", [SLOW] * 3, 10)
    assert str(error.value) == (
        "profiles='fleet.csv': must have a profile for each of the 10 workers, and has 3; "
        "add or remove lines, change the column 'workers', or set the number of workers"
    )


def test_as_plain_data():
    assert as_plain_data([SLOW, SLOW, FAST, SLOW]) == [
        {"workers": 2, "rows_per_second": 1000.0, "uplink": 2e4, "downlink": 1e5, "memory": None},
        {"workers": 1, "rows_per_second": 20000.0, "uplink": 1e6, "downlink": 1e6, "memory": 5e6},
        {"workers": 1, "rows_per_second": 1000.0, "uplink": 2e4, "downlink": 1e5, "memory": None},
    ]


def test_a_policy_by_them():
    assert make_policy("resource-aware:deadline=0.1", [SLOW, FAST]) == ResourceAware([SLOW, FAST], 0.1)
    assert make_policy("resource-aware:deadline=inf", [SLOW]).deadline == math.inf
