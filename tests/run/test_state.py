"""What is said of workers that are not asked any more."""

from danl.protocol.messages import Failure
from danl.run.state import exclusion_notes


def test_workers_that_failed_alike_are_told_of_in_one_line():
    nan, shape = "its loss is nan", "its gradient has 3 numbers"
    failures = [Failure(who, "invalid", nan) for who in range(3)] + [Failure(4, "invalid", shape)]
    failures += [Failure(5, "gone", "out"), Failure(6, "gone", "out"), Failure(7, "refused", "not today")]
    assert exclusion_notes(failures, 2) == (
        f"workers 0, 1 and 2 were quarantined in exchange 2: {nan}",
        f"worker 4 was quarantined in exchange 2: {shape}",
        "workers 5 and 6 died for good in exchange 2: out",
        "worker 7 refused in exchange 2: not today",
    )
    many = exclusion_notes([Failure(who, "invalid", nan) for who in range(25)], 0)
    assert many == (f"workers {', '.join(map(str, range(20)))} and 5 more were quarantined in exchange 0: {nan}",)
