"""What Heptagram costs and gains: ``python -m benchmarks`` and, against peers, ``python -m benchmarks.peers``.

Arms that are compared take turns, run by run, so that whatever else the machine does hits all of them; what is
reported are medians and the median of the runs' ratios. Every result carries machine, command, commit and date.
"""
