"""Saved models: prediction without solvers, the JSON file format, and the ONNX export.

Nothing here touches training data or a ledger, and nothing imports solvers or scikit-learn: a saved model must load
fast. A new file format of a fitted model goes here, next to ``saved.py``.
"""
