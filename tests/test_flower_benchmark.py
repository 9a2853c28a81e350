"""What `python -m benchmarks flower` makes of its stamps; nothing is started, and nothing timed."""

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install danl[flower]")

from benchmarks.blocks import ROOT
from benchmarks.flower import OFFICIAL, PARTS, cases, headers, parts_of, report


def stamps(begun=100.0, exchanges=4):
    """Three sites; the second is the last to reply, in 2.0 seconds."""
    server, clients, logs = [], [], []
    for number in range(exchanges):
        at, group = begun + 10 * number, str(number)
        for site in range(3):
            name, late = f"site-{site}", 0.1 * (site == 1)
            server += [{"group": group, "begun": at, "pushed": at + 0.1}, {"group": group, "pulled": at + 1.9 + late}]
            logs += [{"group": group, "node": name, "received": at + 0.4}]
            logs += [{"group": group, "node": name, "sending": at + 1.7 + late}]
            times = {"started": at + 0.5, "loaded": at + 0.9, "imported": at + 1.2, "begun": at + 1.2}
            clients.append({"group": group, "node": name, "read": 0.2, "ended": at + 1.5 + late} | times)
    facts = {"group": "facts", "begun": begun - 5, "pushed": begun - 4}
    return [facts, *server], clients, logs


def test_the_parts_are_those_of_the_last_site_and_add_up():
    found = parts_of(*stamps())
    assert len(found) == 2  # the first two exchanges start something for the first time
    for each in found:
        assert each["total"] == pytest.approx(2.0)
        assert sum(each[part] for part in PARTS) == pytest.approx(each["total"])
        wanted = {"pushed": 0.1, "noticed": 0.3, "launched": 0.1, "flower": 0.4, "danl": 0.3, "read": 0.2}
        assert {part: each[part] for part in wanted} == pytest.approx(wanted)
        assert each["answered"] == pytest.approx(0.2)


def test_a_forked_process_has_loaded_flower_before_it_is_there():
    server, clients, logs = stamps()
    early = [line | {"loaded": line["started"] + 0.01, "imported": line["started"] + 0.02} for line in clients]
    for each in parts_of(server, early, logs):
        assert each["flower"] == pytest.approx(0.01)
        assert sum(each[part] for part in PARTS) == pytest.approx(each["total"])


def test_the_table_has_a_column_for_every_case():
    found = parts_of(*stamps())
    everything = cases(ROOT / "src")
    table = report([{"name": case.name, "exchanges": found} for case in everything])
    assert table.splitlines()[0] == "| " + " | ".join(headers()[0]) + " |"
    assert len(table.splitlines()) == 3 + len(PARTS)
    assert table.splitlines()[-1] == "| **all of it** | " + " | ".join(["**2.00**"] * 4) + " |"
    assert next(case.name for case in cases(None)) == OFFICIAL
