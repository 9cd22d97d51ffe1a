"""The ``dperm`` command: one module for each command, or a folder for a group of them.

``start`` is the entry point, ``main`` lists the commands and turns every error into one sentence and an exit code.
``output``, ``options`` and ``writing`` are shared by the commands. Commands import the library inside their functions,
so that ``dperm --help`` is fast, and nothing outside this folder imports it. A new command gets a module of its own and
a line in ``main``.
"""
