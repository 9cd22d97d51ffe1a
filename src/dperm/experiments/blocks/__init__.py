"""Experiments of the DP-SkGD paper (Maranjyan, Sadiev and Richtarik), which itself prints no measurements.

``problem`` has a least-squares problem in which one coordinate matters more or less, and fits it; every other file is
one experiment.
"""
