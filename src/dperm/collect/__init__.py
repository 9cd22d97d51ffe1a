"""The local model at work: one bit from a device to a model with error bars. See ``docs/collect.md``."""

from dperm.collect.description import Collection

__all__ = ["Collection"]
