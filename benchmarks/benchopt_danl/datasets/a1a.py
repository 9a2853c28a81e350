"""a1a of LIBSVM, 1,605 rows of 123 features; danl brings it along, so nothing is downloaded."""

from benchopt import BaseDataset

import danl


class Dataset(BaseDataset):
    """a1a, for as many workers as asked for."""

    name = "a1a"

    parameters = {"workers": [10]}  # noqa: RUF012 (benchopt's interface)

    def get_data(self):
        """The arguments of `Objective.set_data`."""
        data = danl.load_dataset("a1a")
        return {"X": data.X, "y": data.y, "workers": self.workers}
