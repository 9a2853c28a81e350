"""`danl flower up FILE FILE`: files of sites as they are."""

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install danl[flower]")

import danl
from danl.engines.flower.site import Site
from danl.engines.flower.site_rules import SiteRules
from danl.engines.flower.sitefiles import sites_of_files
from tests.cli.shell import run as run_danl

HOSPITALS = Path(__file__).resolve().parents[2] / "examples" / "hospitals"


def test_each_file_is_a_site_under_the_default_rules(tmp_path):
    paths = {name: HOSPITALS / f"{name}.csv" for name in ("north", "south")}
    (tmp_path / "north.ledger").mkdir()
    configs = sites_of_files(paths, tmp_path, binary=True)
    assert [config["name"] for config in configs] == ["north", "south"]
    assert not (tmp_path / "north.ledger").exists()  # what was answered before is of another federation
    for config, path in zip(configs, paths.values(), strict=True):
        site = Site.from_config(config)
        assert site.rules == SiteRules(ledger=config["ledger"])
        assert site.reference.path == str(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(danl.InputError, match=r"DATA='.*west.csv': must be a file that is there"):
        sites_of_files({"west": tmp_path / "west.csv"}, tmp_path, binary=True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--sites", "2"], "--sites=2: must be left out where every file is a site"),
        (["--n-features", "3"], "--n-features=3: must be left out"),
    ],
)
def test_rows_of_files_are_not_dealt_out(words, says, tmp_path, capsys):
    files = [str(HOSPITALS / f"{name}.csv") for name in ("north", "south")]
    ended = run_danl(capsys, "flower", "up", *files, "--dir", tmp_path, *words)
    assert ended.status == 2
    assert says in ended.err


def test_two_files_of_one_name_are_refused(tmp_path, capsys):
    north = str(HOSPITALS / "north.csv")
    ended = run_danl(capsys, "flower", "up", north, north, "--dir", tmp_path)
    assert ended.status == 2
    assert "FILE='north': must be the name of one file alone" in ended.err
