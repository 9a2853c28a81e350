"""Flower federations: the app that runs there, a fit driven from outside, and a federation on this machine."""

import danl.engines.flower  # noqa: F401  # before Flower is imported: it sets what Flower reads then
