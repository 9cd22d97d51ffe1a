"""The Python client: one random bit about a person, made on the person's own device.

Needs nothing but the standard library, so this folder can be copied into an application as it is.
"""

from dperm.collect.sdk.python.device import Device, load
from dperm.collect.sdk.python.report import RefusedTask, answer, check, record, word

__all__ = ["Device", "RefusedTask", "answer", "check", "load", "record", "word"]
