"""The paper's tables and figures as named experiments.

``catalogue`` lists them; each has a file of its own that plans its cells, runs them and shows the result.  ``planning``
from options to cells, ``cells`` units of work and their store, ``trainings`` what most cells do,
``bench`` runs them all, ``tuning`` chooses hyper-parameters on val frames.
"""
