"""The simulator: engines, the event loop, and the tables that a run leaves."""

from olp_ray.sim.observers import PriceLog, TimedRouter
from olp_ray.sim.result import Result
from olp_ray.sim.run import Simulation
from olp_ray.sim.simulate import fleet_engines, saturation_rate, simulate

__all__ = ["PriceLog", "Result", "Simulation", "TimedRouter", "fleet_engines", "saturation_rate", "simulate"]
