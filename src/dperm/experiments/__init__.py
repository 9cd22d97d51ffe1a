"""The papers' tables and figures, measured again: `dperm experiment`.

One room for each paper and one file for each experiment; ``registry`` lists them. ``experiment`` says what an
experiment is, ``result`` what it returns, ``running`` computes it piece by piece, ``writing`` and ``charts`` write it
down, ``datasets`` finds its data. It may import everything below it; nothing imports it but the command.
"""
