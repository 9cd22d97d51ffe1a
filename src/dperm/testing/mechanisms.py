"""What checks share about mechanisms: an objective that ignores all data."""

from __future__ import annotations

from typing import Any

from dperm.privacy.mechanisms.objective_perturbation import PrivateObjective

__all__ = ["LinearObjective"]


class LinearObjective(PrivateObjective):
    """slopes.w + strength |w|^2 / 2, minimised exactly: the release is the noise b, up to a factor."""

    def __init__(self, slopes: Any, strength: float, curvature_ratio: float) -> None:
        self.slopes, self.size = slopes, len(slopes)
        self.strength, self.curvature_ratio = strength, curvature_ratio

    def minimise(self, linear: Any, tolerance: float) -> Any:
        """Return the exact minimiser."""
        return -(self.slopes + linear) / self.strength

    def gradient(self, weights: Any) -> Any:
        """Return the gradient at ``weights``."""
        return self.slopes + self.strength * weights
