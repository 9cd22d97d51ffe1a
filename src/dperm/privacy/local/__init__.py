"""Local reports: each person randomises a value before sending it, so that the collector need not be trusted.

``one_bit``, ``few_levels`` and ``categories`` are the reports, ``public_noise_bit`` a repaired published one;
``shuffle`` bounds what a trusted shuffler adds. They use :mod:`dperm.privacy.accounting` and
:mod:`dperm.privacy.randomness`. A new report gets a file with its proof, and a line in ``registry`` if its law is a
table of whole numbers: the contract suite then checks it.
"""
