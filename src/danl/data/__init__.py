"""Data: sets by name or from files, and their division into the workers' shards."""

from danl.data.dataset import Dataset, load_dataset
from danl.data.partition import partition
from danl.data.shard import Shard

__all__ = ["Dataset", "Shard", "load_dataset", "partition"]
