"""What every test gets: its own cache folder, and no way to the network beyond this machine."""

import os
from pathlib import Path

import platformdirs
import pytest
from hypothesis import HealthCheck, settings

# The same examples everywhere, however long they take; `--hypothesis-profile=default` draws others.
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")

# Read before any test changes the environment.
_DATA_DIR = os.environ.get("DANL_DATA_DIR", "")


def pytest_collection_modifyitems(items):
    """What starts other processes is slow, too: `-m "not slow"` is the inner loop."""
    for item in items:
        if item.get_closest_marker("engines"):
            item.add_marker("slow")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """Point the user's cache at a fresh folder (in subprocesses too) and return danl's folder in it."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda name: str(folder / name))
    monkeypatch.delenv("DANL_OFFLINE", raising=False)
    return folder / "danl"


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory, monkeypatch):
    """The same for what sites remember; return the folder."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    monkeypatch.setattr(platformdirs, "user_state_dir", lambda name: str(folder / name))
    return folder / "danl"


@pytest.fixture
def data_dir():
    """Return the folder with the LIBSVM files, for tests that need more than the bundled a1a."""
    if not _DATA_DIR:
        pytest.skip("DANL_DATA_DIR is not set: needs the LIBSVM files")
    return Path(_DATA_DIR)
