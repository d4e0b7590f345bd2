"""The paper's tables and figures as named experiments.

``catalogue`` what each experiment needs, ``planning`` from options to cells, ``cells`` units of work and their store, ``locks`` who works on
one, ``work`` and ``looks`` what a cell does, ``bench`` runs them, ``scores`` and ``sections`` make the tables, ``tuning`` chooses
hyper-parameters on val frames.
"""
