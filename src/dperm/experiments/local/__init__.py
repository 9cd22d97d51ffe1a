"""Experiments of the paper on the local model (Wang, Gaboardi and Xu, 2018), which itself prints no measurements.

``people`` has populations and draws people from them, ``published`` runs the paper's algorithms on them; every other
file is one experiment.
"""
