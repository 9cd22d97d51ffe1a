"""Experiments of the DP-GCD paper (Mangold, Bellet, Salmon and Tommasi, AISTATS 2023).

``problems`` has its eight problems and their optima, ``methods`` fits them with DP-GCD, DP-CD and DP-SGD, ``settings``
has the options that were chosen for them; every other file is one table or figure.
"""
