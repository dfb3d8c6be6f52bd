"""The contract: what goes into the router (events) and what comes out (decisions), as plain frozen records.

Here live only records and their validation, one file for each kind; all are imported from here. No record has behaviour
that decides anything.

Units: every time is in seconds (`_s`) on the driver's clock, which starts at 0; the paper's period model (Section 2)
is the same contract with a step time of 1 s. Token counts are whole numbers except predictions, which are floats.
"""

from olp_ray.core.types.decisions import Assign, Decision, PriceWork, Reject, RejectReason, Step
from olp_ray.core.types.devices import Device, IterationModel
from olp_ray.core.types.events import (
    Arrived,
    Cancelled,
    CapacityChanged,
    DeviceDraining,
    DeviceJoined,
    DeviceLost,
    EngineObserved,
    Event,
    ExternalLoad,
    Finished,
    Preempted,
    PricesReady,
    Progressed,
    Reconfigure,
    ReplicaRefused,
    Started,
)
from olp_ray.core.types.objective import Objective
from olp_ray.core.types.requests import AssignmentKey, Request, RequestKey, Stage

__all__ = [
    "Arrived",
    "Assign",
    "AssignmentKey",
    "Cancelled",
    "CapacityChanged",
    "Decision",
    "Device",
    "DeviceDraining",
    "DeviceJoined",
    "DeviceLost",
    "EngineObserved",
    "Event",
    "ExternalLoad",
    "Finished",
    "IterationModel",
    "Objective",
    "Preempted",
    "PriceWork",
    "PricesReady",
    "Progressed",
    "Reconfigure",
    "Reject",
    "RejectReason",
    "ReplicaRefused",
    "Request",
    "RequestKey",
    "Stage",
    "Started",
    "Step",
]
