"""``heptagram doctor``: what is there, what is missing, and what to do.

Nothing is imported here that may be missing or broken: packages are tried in a process of their own.
"""
