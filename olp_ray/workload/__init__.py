"""Workloads: trace files, generators, length predictors, and the requests made of them."""

from olp_ray.workload.generators import GENERATORS, generate
from olp_ray.workload.online_lengths import OnlineLengths
from olp_ray.workload.predictors import PREDICTORS, Predictor, parse_predictor
from olp_ray.workload.request import SimRequest
from olp_ray.workload.requests import make_requests, with_rate
from olp_ray.workload.traces import read_trace

__all__ = [
    "GENERATORS",
    "PREDICTORS",
    "OnlineLengths",
    "Predictor",
    "SimRequest",
    "generate",
    "make_requests",
    "parse_predictor",
    "read_trace",
    "with_rate",
]
