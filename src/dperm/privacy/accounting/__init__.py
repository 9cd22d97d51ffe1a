"""Privacy accounting: what releases cost, how costs add up, and the noise that a budget requires.

``events`` describe releases as data; ``curves`` give the cost of one event, ``composition`` adds events up and converts
to (epsilon, delta), with ``gdp``, ``pld``, ``profiles`` and ``objective_perturbation`` as its methods. ``calibration``
finds the noise of a plan for a ``budget``; ``guarantee`` and ``posterior`` state what the result means. Nothing here
touches data or draws randomness. A new event goes into ``events`` and ``curves``, with its proof in
``curves.proof.md``.
"""
