"""The experiments of the ADMM sharing paper: Hu, Liu, Niu, Yang and Zhou, "Learning Privately over Distributed
Features: An ADMM Sharing Approach", 2019.

``traces`` follows runs round by round; each other file is one figure. Problems are in
:mod:`dperm.experiments.vertical_problems`.
"""
