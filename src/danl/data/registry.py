"""The data sets that have a name: where each comes from and what it must look like.

All are binary-classification sets of the LIBSVM site, a1a to a3a and phishing being the paper's. The number
of features is part of the record because it cannot be inferred: the highest index in a1a is 119, of 123
columns. Digests are of the plain text, so that the same file is recognised however it is packed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from danl.spec import unknown_name

SITE = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"


@dataclass(frozen=True)
class Registered:
    """One data set that can be loaded by name.

    Attributes
    ----------
    name
        What `danl.load_dataset` takes.
    rows, features
        The shape the file must have.
    sha256
        Digest of the plain, unpacked text; None where it is not known, and then only the shape is checked.
    filename
        The file's name at the source, suffix included; its name unless given.
    packed
        How it is packed there: ``"bz2"``, ``"gz"``, ``"xz"``, or None for plain text.
    url
        Where the file is downloaded from.
    """

    name: str
    rows: int
    features: int
    sha256: str | None = None
    filename: str = ""
    packed: str | None = None
    url: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "filename", self.filename or self.name)
        object.__setattr__(self, "url", self.url or SITE + self.filename)

    @property
    def plain_filename(self) -> str:
        """The file's name once unpacked."""
        return self.filename.removesuffix(f".{self.packed}")


_SETS = (
    # UCI Adult, LIBSVM encoding
    Registered("a1a", 1_605, 123, "eb54c45f1bdb51286f803dd092eb8202b44637a858fc6c4e533a2d64a0d94b4e"),
    Registered("a2a", 2_265, 123, "316b33bd7fef67d158901a0391b320cf7cc530c44cda965f6ae82731458b65c0"),
    Registered("a3a", 3_185, 123, "0bde977ba84658a6a2113c097cf5f3c08007e26d65a20d9a56def92c0876b8ec"),
    Registered("a4a", 4_781, 123),
    Registered("a5a", 6_414, 123),
    Registered("a6a", 11_220, 123),
    Registered("a7a", 16_100, 123),
    Registered("a8a", 22_696, 123),
    Registered("a9a", 32_561, 123, "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906"),
    # Web pages (Platt), LIBSVM encoding
    Registered("w1a", 2_477, 300),
    Registered("w2a", 3_470, 300),
    Registered("w3a", 4_912, 300),
    Registered("w4a", 7_366, 300),
    Registered("w5a", 9_888, 300),
    Registered("w6a", 17_188, 300),
    Registered("w7a", 24_692, 300),
    Registered("w8a", 49_749, 300, "6a9fa8fd5f524303240a5db07d4b3d4a51e8b7b4b20a914105d8e3e8c81640f2"),
    Registered("phishing", 11_055, 68, "0cf66ef36604c393da9359b2e5d894a2df8aee31fd184633cefa138add2ef08a"),
    Registered("mushrooms", 8_124, 112),
    Registered("ijcnn1", 49_990, 22, filename="ijcnn1.bz2", packed="bz2"),
    Registered("covtype.binary", 581_012, 54, filename="covtype.libsvm.binary.bz2", packed="bz2"),
)

REGISTRY: Mapping[str, Registered] = MappingProxyType({entry.name: entry for entry in _SETS})


def lookup(name: str) -> Registered:
    """Return the registered data set called `name`, or raise an error that lists the names there are."""
    entry = REGISTRY.get(name)
    if entry is None:
        raise unknown_name("name", name, REGISTRY, "or give the path of a LIBSVM, CSV or Parquet file that exists")
    return entry
