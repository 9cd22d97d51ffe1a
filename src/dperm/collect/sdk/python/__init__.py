"""The Python client: makes one random bit about a person, on the person's own device.

It uses the standard library only and imports nothing else of dperm, so an application can copy this folder as it is.
Whatever is added here must keep that, and must compute the same as ``js/dperm.js``.
"""

from .device import Device, load, parse_task
from .report import RefusedTask, answer, check, check_names, random_word, record

__all__ = ["Device", "RefusedTask", "answer", "check", "check_names", "load", "parse_task", "random_word", "record"]
