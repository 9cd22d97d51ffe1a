"""Mutation testing: change one line that privacy rests on, run the tests that reach it, and see whether one fails.

``make mutants`` draws a fixed sample of such changes over the folders of ``sampling.SHARES`` and writes what came of
each into ``benchmarks/results/mutants.md``. The changes and the record of the session are those of Cosmic Ray; this
package adds what a large numerical library needs to finish within hours:

- ``operators``: which changes are made;
- ``places``: where no change is made, by rule, because nothing private is computed there;
- ``sampling``: all mutants, and the sample;
- ``coverage_map``: which tests run which line, measured once;
- ``selection``: the tests that a mutant is given, in order;
- ``runner`` and ``worker``: the tests of one mutant, in a process forked from one that has its imports done;
- ``explained``: why a survivor is no gap, kept in ``explained.toml``;
- ``report``: the results as text.
"""
