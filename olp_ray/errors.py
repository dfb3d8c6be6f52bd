"""Every error that olp-ray raises on purpose, and nothing else.

::

    OlpRayError
    ├── ConfigError          a YAML file, flag or model field is wrong   (also ValueError)
    ├── WorkloadError        a trace file or generated workload is wrong (also ValueError)
    ├── RequestError         a request can not be taken in as it is      (also ValueError)
    ├── EventError           an event contradicts the router's state     (also ValueError)
    ├── PolicyError          a policy returned a decision it may not make
    ├── PriceError           a price block got or returned wrong arrays
    ├── SnapshotError        a snapshot is of another version or shape   (also ValueError)
    ├── SimulationError      a simulation can not go on
    └── RuntimeShellError    a Ray actor, deployment or engine failed

The text of each says what was wrong, where, and what is allowed. Raising one of them leaves the object that raised
it as it was before the call.
"""


class OlpRayError(Exception):
    """Base of every error raised by this package."""


class ConfigError(OlpRayError, ValueError):
    """A configuration value is wrong; the text names file, key, expected and actual."""


class WorkloadError(OlpRayError, ValueError):
    """A trace or a workload is wrong; the text names file, line, column, expected and actual."""


class RequestError(OlpRayError, ValueError):
    """A request has a field outside its domain."""


class EventError(OlpRayError, ValueError):
    """An event contradicts what the router knows."""


class PolicyError(OlpRayError):
    """A policy returned a decision that it may not make."""


class PriceError(OlpRayError):
    """A price block was given, or gave back, arrays of a wrong shape or with values that are not finite."""


class SnapshotError(OlpRayError, ValueError):
    """A snapshot was written by another version or for another fleet."""


class SimulationError(OlpRayError):
    """A simulation can not go on."""


class RuntimeShellError(OlpRayError):
    """A Ray actor, a Serve deployment or an engine failed."""
