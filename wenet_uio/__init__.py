"""Speech recognition recipes and tools around one data layer, Unified IO."""

__version__ = "0.1.0"
