"""What every config model shares: frozen, no unknown keys, errors that name the place. Also the YAML reader.

Numbers like 1e-3, which YAML 1.1 reads as text, are numbers here.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from olp_ray.errors import ConfigError

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Mode = Literal["timed", "period"]


class Model(BaseModel):
    """Base of all config models: frozen, no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def nearest(name: str, valid: Any) -> str:
    """`; did you mean X? valid: A, B` for an error text."""
    names = sorted(map(str, valid))
    close = difflib.get_close_matches(name, names, n=1)
    return (f"; did you mean {close[0]!r}?" if close else "") + f" (valid: {', '.join(names)})"


ModelT = TypeVar("ModelT", bound=Model)


def load_yaml(path: str | Path, model: type[ModelT]) -> ModelT:
    """Read a YAML file into a model. Raises `ConfigError` naming file, key, expected and actual."""
    path = Path(path)
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: expected UTF-8 text: {error.reason} at byte {error.start}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: expected a mapping of keys at the top, got {type(data).__name__}")
    return validate(data, model, str(path))


def validate(data: dict[str, Any], model: type[ModelT], where: str) -> ModelT:
    """Check a mapping against a model. Raises `ConfigError` with one line per fault."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        lines = [_explain(fault, model) for fault in error.errors()]
        raise ConfigError("\n".join(f"{where}: {line}" for line in lines)) from error


def _explain(fault: Any, model: type[BaseModel]) -> str:
    key = ".".join(str(part) for part in fault["loc"]) or "(top)"
    if fault["type"] == "extra_forbidden":
        fields = _fields_at(model, fault["loc"][:-1])
        return f"{key}: unknown key{nearest(str(fault['loc'][-1]), fields)}"
    message = fault["msg"].removeprefix("Value error, ")
    given = fault.get("input")
    shown = "" if isinstance(given, dict | list | tuple | BaseModel) else f", got {given!r}"
    return f"{key}: {message}{shown}"


def _fields_at(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    current: Any = model
    for part in path:
        if isinstance(part, int):
            continue
        current = _inner_model(current.model_fields[part].annotation)
        if current is None:
            return []
    return list(current.model_fields)


def _inner_model(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_inner_model(arg) for arg in getattr(annotation, "__args__", ()))
    return next((model for model in found if model is not None), None)


class _Loader(yaml.SafeLoader):
    """SafeLoader that reads 1e-3 and 1e3 as numbers, and takes no key twice."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        known: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in known:
                    raise yaml.MarkedYAMLError(problem=f"key {key.value!r} is there twice", problem_mark=key.start_mark)
                known.add(key.value)
        return node


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9][0-9_]*)(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)
