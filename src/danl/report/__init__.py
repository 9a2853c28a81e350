"""The report of runs: one HTML page, with everything in it, from the files that runs wrote.

    from danl.report import read_runs, write_report

    write_report(read_runs(["run"]), "run/report.html")

`recorded.py` reads the folders, `findings.py` and `advice.py` say in sentences what the rows show, `payload.py` makes
the page's data, `page.py` the page, `live_page.py` serves the same page while a run goes on. Nothing here runs
anything, and nothing is loaded from elsewhere: plotly, which draws, is copied into the page.
"""

from __future__ import annotations

from danl.report.findings import Finding, findings
from danl.report.page import write_report
from danl.report.recorded import RecordedRun, read_run, read_runs

__all__ = ["Finding", "RecordedRun", "findings", "read_run", "read_runs", "write_report"]
