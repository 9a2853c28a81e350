"""What the page shows of a fitted model: the tables of summary.json, looked at, as a file may have been changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from danl.checks import is_finite
from danl.wording import coefficient

COLUMNS = ("coef", "std_err", "p_value", "ci_low", "ci_high")
NUMBERS = {
    "records": "Records",
    "events": "Events",
    "deviance": "Deviance",
    "null_deviance": "Null deviance",
    "df_resid": "Degrees of freedom",
    "log_likelihood": "Log-likelihood",
    "aic": "AIC",
    "dispersion": "Dispersion",
}
SITES = {
    "name": "Site",
    "records": "Records",
    "events": "Events",
    "left_out": "Missing",
    "unknown_levels": "Other levels",
}
SAID = ("remarks", "absent", "notes")
"""What is said below the tables, in this order."""
MOST_LINES = 500
"""Coefficients, sites and notes that are shown."""
LONGEST_LABEL = 28
"""Characters of a name beside the forest plot; the table has the whole name."""


def model_of(tables: Mapping[str, Any]) -> dict[str, Any] | None:
    """The model of a run as the page draws it; None where there is none, or it is not as danl writes it."""
    lines, numbers, sites = tables.get("coefficients"), tables.get("numbers"), tables.get("sites")
    if not (isinstance(lines, list) and isinstance(numbers, Mapping) and isinstance(sites, list)):
        return None
    ratio = tables.get("ratio")
    ratio = ratio if isinstance(ratio, str) else None
    level = tables.get("level")
    told = [site for site in sites if isinstance(site, Mapping)][:MOST_LINES]
    heads = {name: title for name, title in SITES.items() if any(site.get(name) is not None for site in told)}
    said = {key: [str(each) for each in _list(tables.get(key)) if isinstance(each, str)] for key in SAID}
    return {
        "title": str(tables.get("title", "")),
        "ratio": ratio,
        "level": level if is_finite(level) else 0.95,
        "statistic": "t" if tables.get("statistic") == "t" else "z",
        "longest": LONGEST_LABEL,
        "coefficients": [_line(line, ratio) for line in lines[:MOST_LINES] if isinstance(line, Mapping)],
        "numbers": [[title, _text(numbers.get(name))] for name, title in NUMBERS.items() if _there(numbers.get(name))],
        "sites": {
            "heads": list(heads.values()),
            "lines": [[_text(site.get(name)) for name in heads] for site in told],
        },
        "notes": [*said["remarks"], *(f"not in it: {each}" for each in said["absent"]), *said["notes"]][:MOST_LINES],
    }


def _line(line: Mapping[str, Any], ratio: str | None) -> dict[str, Any]:
    values = {name: _number(line.get(name)) for name in COLUMNS}
    values["z"] = _number(line.get("z"))
    if ratio is not None:
        name = ratio.replace(" ", "_")
        values |= {
            "ratio": line.get(name),
            "ratio_low": line.get(f"{name}_low"),
            "ratio_high": line.get(f"{name}_high"),
        }
        values |= {key: _number(values[key]) for key in ("ratio", "ratio_low", "ratio_high")}
    return {"name": str(line.get("name", ""))} | values


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    return float(value) if is_finite(value) else None


def _there(value: Any) -> bool:
    return isinstance(value, str) or is_finite(value)


def _text(value: Any) -> str:
    if is_finite(value):
        return f"{int(value):,}" if float(value).is_integer() else coefficient(float(value))
    return str(value) if isinstance(value, str) else "-"
