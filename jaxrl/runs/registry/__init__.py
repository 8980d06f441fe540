"""A registry of models: numbered versions of each, and the stages that point at them."""

from jaxrl.runs.registry.model_files import CHECKSUMS, damage, write_checksums
from jaxrl.runs.registry.model_registry import (
    DEFAULT,
    LATEST,
    STAGES,
    Gate,
    GateClosed,
    ModelRegistry,
    check_name,
    check_stage,
)

__all__ = [
    "CHECKSUMS",
    "DEFAULT",
    "LATEST",
    "STAGES",
    "Gate",
    "GateClosed",
    "ModelRegistry",
    "check_name",
    "check_stage",
    "damage",
    "write_checksums",
]
