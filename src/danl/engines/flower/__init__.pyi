"""The public names of danl.flower and their places."""

from .clientapp import client_app as client_app
from .engine import GridEngine as GridEngine
from .simulation import FlowerSimulation as FlowerSimulation
from .site import Site as Site
from .site_rules import SiteRules as SiteRules
