"""Clients of the collector: ``js/dperm.js`` for browsers, ``python`` for everything else."""
