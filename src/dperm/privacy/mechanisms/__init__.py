"""Mechanisms: how a value computed from private data is released with noise, exactly as its event claims.

``standard`` has the base class, the registry and the usual mechanisms; ``lattice``, ``selection`` and
``integer_samplers`` draw exact noise for them. ``sampled_noise``, ``objective_perturbation`` and ``joint_selection``
are further mechanisms; ``printed`` has calibrations as papers print them, without a guarantee. Mechanisms use
:mod:`dperm.privacy.accounting` and :mod:`dperm.privacy.randomness` and no other source of noise. A new mechanism gets a
file of its own, a line in the registry and a proof next to it.
"""
