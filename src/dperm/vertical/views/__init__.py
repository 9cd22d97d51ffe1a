"""The trust views at run time: how replies are protected from the coordinator while they travel.

:mod:`secure_sum` masks arrays of which the coordinator needs only the total. A view that encrypts replies goes here
too, with its proof beside it. What a view guarantees and reports is registered in
``dperm/solvers/vertical/views.py``. This
room may import ``transport`` and ``identity``; sessions call it.
"""
