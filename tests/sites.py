"""Files of sites for tests: three with permuted columns, and 30 that are malformed around a value nobody may see."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field

import numpy as np

import danl

TOKEN = "SECRET77341"
"""A patient's identifier; it stands in every malformed file."""
NUMBER = "77341.625"
"""The same where only a number can stand."""
NAMES = ("age", "bmi", "pulse", "salt")
ORDERS = (
    ["age", "bmi", "pulse", "salt", "ill"],
    ["salt", "ill", "bmi", "age", "pulse"],
    ["ill", "pulse", "age", "salt", "bmi"],
)


def rows(n=150, seed=0):
    """Rows of sites that differ: columns of different scales, so that places matter."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)) * [1.0, 2.0, 0.5, 1.0] + [0.0, 1.0, 0.0, -1.0]
    y = (rng.random(n) < 1 / (1 + np.exp(-(X @ [1.5, -1.0, 2.0, 0.0])))).astype(float)
    return X, y


def permuted_files(folder, suffix=".csv", orders=ORDERS):
    """Three files of the same columns, each in an order of its own; the pooled problem in the order of the first."""
    X, y = rows()
    paths, parts = [], np.array_split(np.arange(len(y)), len(orders))
    for number, (order, own) in enumerate(zip(orders, parts, strict=True)):
        table = {name: X[own, column] for column, name in enumerate(NAMES)} | {"ill": y[own]}
        path = folder / f"site-{number}{suffix}"
        if suffix == ".csv":
            lines = [
                ",".join(order),
                *(",".join(repr(float(table[name][row])) for name in order) for row in range(len(own))),
            ]
            path.write_text("\n".join(lines) + "\n")
        else:
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.table({name: table[name] for name in order}), path)
        paths.append(path)
    shards = [danl.Shard.of(X[own], y[own]) for own in parts]
    return paths, danl.Problem(shards, alpha=1e-3, weighting="samples")


def pooled(problem):
    """The model of one fit on all rows."""
    everything = danl.Shard.of(np.vstack([s.X for s in problem.shards]), np.concatenate([s.y for s in problem.shards]))
    return danl.reference_optimum(danl.Problem([everything], alpha=1e-3)).w


@dataclass(frozen=True)
class Malformed:
    """A file that cannot be read, and what its error must say of the place."""

    name: str
    text: str | bytes
    says: str
    options: dict = field(default_factory=dict)
    loss: str = "logistic"


GOOD = "1.5,2,1\n0.5,1,0\n"
HEAD = "age,bmi,ill\n"

MALFORMED = [
    Malformed("word.csv", f"{HEAD}{GOOD}{TOKEN},2,1\n", "word.csv, line 4 (row 2, counted from 0), column 1"),
    Malformed("word_late.csv", f"{HEAD}{GOOD}{NUMBER},{TOKEN},1\n", "line 4 (row 2, counted from 0), column 2"),
    Malformed("missing.csv", f"{HEAD}{NUMBER},,1\n", "line 2 (row 0, counted from 0), column 2: the value is missing"),
    Malformed("missing_target.csv", f"{HEAD}{NUMBER},2,\n", "line 2 (row 0, counted from 0), column 3"),
    Malformed("quotes.csv", f'{HEAD}"{TOKEN}"x,2,1\n', "quotes.csv, line 2"),
    Malformed("open_quote.csv", f'{HEAD}"{TOKEN},2,1\n', "open_quote.csv, line 2"),
    Malformed("cells.csv", f"{HEAD}{GOOD}{TOKEN},2,1,7\n", "cells.csv, line 4: found 4 cells, expected 3"),
    Malformed("few_cells.csv", f"{HEAD}{TOKEN},1\n", "few_cells.csv, line 2: found 2 cells, expected 3"),
    Malformed("label.csv", f"{HEAD}{GOOD}1,2,{TOKEN}\n", "label.csv: the target has"),
    Malformed("number_label.csv", f"{HEAD}{GOOD}1,2,{NUMBER}\n", "number_label.csv: the target has 3 values"),
    Malformed("negative.csv", f"{HEAD}{GOOD}1,2,-{NUMBER}\n", "y[2]", {"target": "real"}, "poisson"),
    Malformed("class.csv", f"{HEAD}{GOOD}1,2,{NUMBER}\n", "y: loss", {"target": "real"}, "multinomial:classes=3"),
    Malformed("real.csv", f"{HEAD}{GOOD}1,2,{TOKEN}\n", "y[2]", {"target": "real"}, "squared"),
    Malformed("nan.csv", f"{HEAD}{NUMBER},nan,1\n", "line 2 (row 0, counted from 0), column 2"),
    Malformed("inf.csv", f"{HEAD}{GOOD}{NUMBER},inf,1\n", "inf.csv: X[2, 1]"),
    Malformed("huge.csv", f"{HEAD}{GOOD}{NUMBER},{'9' * 400},1\n", "huge.csv: X[2, 1]"),
    Malformed("weight.csv", f"a,w,ill\n1,2,1\n1,-{NUMBER},0\n", "weight.csv: weights[1]", {"weight_column": "w"}),
    Malformed("bytes.csv", f"{HEAD}1,2,1\n".encode() + b"\xff\xfe" + TOKEN.encode() + b",1,1\n", "bytes.csv, line"),
    Malformed("no_header.csv", f"{NUMBER},2,1\n1,2,0\n", "no_header.csv, line 1: expected the column names"),
    Malformed("no_header_label.csv", f"{NUMBER},2,{TOKEN}\n1,2,{TOKEN}\n", "no_header_label.csv", {"positive": TOKEN}),
    Malformed("no_header_text.csv", f"{TOKEN},1980-02-03,yes\n{TOKEN},1981-02-03,no\n", "line 2 (row 0"),
    Malformed("header_number.csv", f"{TOKEN},{NUMBER},yes\n1,2,0\n", "the name of column 2 is a number"),
    Malformed("header_doubled.csv", f"{TOKEN},{TOKEN},ill\n1,2,0\n", "columns 1 and 2 have the same name"),
    Malformed("header_twice.csv", f"{HEAD}{HEAD}{TOKEN},2,1\n", "header_twice.csv, line 2"),
    Malformed("target_column.csv", f"{TOKEN},b\n1,0\n", "is no column of target_column.csv", {"target_column": "ill"}),
    Malformed("one_column.csv", f"{TOKEN}\n1\n", "one_column.csv: expected a target and at least one feature"),
    Malformed("date.csv", f"born,id,ill\n1980-02-03,{TOKEN},1\n", "line 2 (row 0, counted from 0), column 1"),
    Malformed("identifier.csv", f"id,age,ill\n{TOKEN},40,1\n", "line 2 (row 0, counted from 0), column 1"),
    Malformed("separator.csv", f"age;bmi;ill\n{TOKEN};2;1\n", "separator.csv: expected a target"),
    Malformed("packed.csv.gz", f"{TOKEN} is no archive", "packed.csv.gz: cannot be read"),
    Malformed("torn.csv.gz", gzip.compress(f"{HEAD}{TOKEN},2,1\n".encode())[:22], "torn.csv.gz: cannot be read"),
    Malformed("torn.parquet", b"PAR1" + TOKEN.encode() * 9 + b"PAR1", "torn.parquet: "),
    Malformed("text.svm", f"1 1:2\n{TOKEN} 1:1\n", "text.svm, line 2: the label is not a number"),
    Malformed("no_label.svm", f"1 1:2\n{NUMBER}:1\n", "no_label.svm, line 2: the label is missing"),
    Malformed("word.svm", f"1 1:2\n0 1:3 2:{TOKEN}\n", "word.svm, line 2: the value of entry 2 is not a number"),
    Malformed("colon.svm", f"1 1:2 {TOKEN}\n", "colon.svm, line 1: entry 2 has no colon"),
    Malformed("index.svm", f"1 1:2 {TOKEN}:1\n", "index.svm, line 1: the index of entry 2 is not a whole number"),
    Malformed("twice.svm", "1 77341:2 77341:1\n", "twice.svm, line 1: the index of entry 2 comes twice"),
    Malformed("order.svm", "1 77341:2 3:1\n", "order.svm, line 1: the index of entry 2 comes after a higher one"),
    Malformed("negative.svm", "1 -77341:2\n", "negative.svm, line 1: the index of entry 1 is negative"),
    Malformed("beyond.svm", "1 77341:2\n", "beyond.svm, line 1: the index of entry 1 is beyond", {"n_features": 5}),
    Malformed("label.svm", f"{NUMBER} 1:2\n0 1:3\n", "label.svm: the target has 2 values"),
    Malformed("nan.svm", f"1 1:{NUMBER} 2:nan\n0 1:3\n", "nan.svm: X[0, 1]"),
]


def parquet_files(folder):
    """Parquet files that are well formed and hold what no fit can use."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = {
        "text.parquet": ({"id": [TOKEN, TOKEN], "age": [1.0, 2.0], "ill": [0.0, 1.0]}, "column 1: must hold numbers"),
        "null.parquet": ({"id": [77341.625, None], "age": [1.0, 2.0], "ill": [0.0, 1.0]}, "row 1 (counted from 0)"),
        "label.parquet": ({"age": [1.0, 2.0], "ill": [TOKEN, "b"]}, "label.parquet: the target has"),
    }
    made = []
    for name, (columns, says) in tables.items():
        pq.write_table(pa.table(columns), folder / name)
        made.append(Malformed(name, (folder / name).read_bytes(), says))
    return made


def write(case, folder):
    path = folder / case.name
    path.write_bytes(case.text if isinstance(case.text, bytes) else case.text.encode())
    return path


def leaks(text):
    """What of a planted value is in a text."""
    return [secret for secret in (TOKEN, "77341", "1980-02", "1981-02", "999999") if secret in text]


def chain(error):
    """Everything that hangs on an exception: its text, notes, causes and contexts."""
    found, seen = [], set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        found += [repr(error), str(error), *getattr(error, "__notes__", [])]
        error = error.__cause__ or error.__context__
    return "\n".join(found)
