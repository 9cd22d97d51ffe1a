"""The commands of ``dperm experiment``; they import :mod:`dperm.experiments` inside, so that others start quickly."""
