"""What one run is told: a strict schema, one file per section, with errors that say where and what instead.

Rooms never see a RunConfig: whoever assembles a run hands each room plain values.
"""

from dragonet.config.load import load_config, resolved_yaml
from dragonet.config.run import RunConfig, config_schema, values_of

__all__ = ["RunConfig", "config_schema", "load_config", "resolved_yaml", "values_of"]
