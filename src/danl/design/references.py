"""The two questions of a design asked of a `ShardReference`: what its columns hold, and its rows.

Both are answered where the rows are: in this process, or by an actor. There are no rules of a site here: who runs danl
in one process, or has a cluster of their own, has the files.
"""

from __future__ import annotations

from collections.abc import Sequence

from danl.data.records import Records
from danl.data.redaction import redacted
from danl.data.reference import ShardReference
from danl.data.schema import LISTED
from danl.data.shard import Shard
from danl.design.analysis import Analysis
from danl.design.design import Design
from danl.design.formula import Model, read_model
from danl.design.survey import Survey, survey
from danl.errors import InputError


def survey_reference(reference: ShardReference, index: int, analysis: Analysis, model: Model) -> tuple[Survey, Records]:
    """What worker `index` tells of its columns, and the records it has read for that."""
    records = reference.records(model.names)
    return survey(records, analysis, model, site=reference.called(index)), records


def survey_references(
    references: Sequence[ShardReference], analysis: Analysis
) -> tuple[tuple[Survey, ...], dict[int, Records]]:
    """What all of them tell; who cannot take part is named, with all others that cannot."""
    if not references:
        raise InputError("shards: must hold at least one ShardReference")
    model = read_model(analysis)
    surveys, read, faults = [], {}, []
    for index, reference in enumerate(references):
        try:
            told, read[index] = survey_reference(reference, index, analysis, model)
            surveys.append(told)
        except Exception as error:
            faults.append(cannot_take_part(reference, index, redacted(error)))
    refuse(faults)
    return tuple(surveys), read


def cannot_take_part(reference: ShardReference, index: int, reported: str) -> str:
    """What is said of a site whose file cannot be used."""
    return f"site {reference.called(index)}: {reported}"


def refuse(faults: Sequence[str]) -> None:
    """End a run before it starts where sites cannot take part: one error that names all of them."""
    if faults:
        more = f"; and {len(faults) - LISTED} more sites" if len(faults) > LISTED else ""
        raise InputError(f"shards: {'; '.join(faults[:LISTED])}{more}")


def shard_of(reference: ShardReference, index: int, design: Design | None, records: Records | None = None) -> Shard:
    """The rows of worker `index`: those of a design, or all of its file."""
    if design is None:
        return reference.read()
    return design.shard(reference.records(design.needed) if records is None else records, reference.called(index))
