"""What the shards of a problem have in common: their columns; and what is said of records that are not among them."""

from __future__ import annotations

from collections.abc import Sequence

from danl.data.schema import LISTED, Names, agreed, labelled
from danl.data.shard import Shard, ShardInfo
from danl.errors import InputError
from danl.wording import listed


def agreed_columns(
    shards: Sequence[Shard | ShardInfo], sites: Sequence[str], wanted: Names | None = None
) -> Names | None:
    """The names of the columns in the order all shards use; all must have as many."""
    first = shards[0]
    if wanted is None and all(
        each.n_features == first.n_features
        and each.feature_names is first.feature_names
        and each.target_name == first.target_name
        for each in shards
    ):
        return first.feature_names
    labels, widths = labelled(sites), dict[int, str]()
    names = agreed([(each.feature_names, each.target_name) for each in shards], labels, wanted)
    for each, label in zip(shards, labels, strict=True):
        widths.setdefault(each.n_features, f"{each.n_features} at {label}")
    if len(widths) > 1:
        raise InputError(
            f"shards: all must have the same number of features, found {listed(widths.values(), LISTED)}; "
            "pass n_features when reading the files (it is never guessed per shard)"
        )
    return names


def records_left_out(info: Sequence[ShardInfo]) -> list[str]:
    """Notes on the records that are not among the rows."""
    parts = (("left_out", "a value is missing"), ("unknown_levels", "a level that too few records have"))
    notes = []
    for part, why in parts:
        found = [f"{getattr(each, part)} at {each.site}" for each in info if getattr(each, part)]
        if found:
            notes.append(f"records left out ({why}): {listed(found, None)}")
    return notes
