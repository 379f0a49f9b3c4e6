"""Banks on top of each other: any number of levels, pooled by mask, windows or segments."""

from ddcl.nn.hierarchy.levels import Level, LevelReadout
from ddcl.nn.hierarchy.outputs import HierarchyOutput, LevelOutput
from ddcl.nn.hierarchy.readout import HierarchicalReadout

__all__ = ["HierarchicalReadout", "HierarchyOutput", "Level", "LevelOutput", "LevelReadout"]
