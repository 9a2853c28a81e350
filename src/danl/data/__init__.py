"""Data: sets by name or from files, and their division into the workers' shards."""

from danl.data.dataset import Dataset, load_dataset
from danl.data.partition import Shard, partition

__all__ = ["Dataset", "Shard", "load_dataset", "partition"]
