"""Stand-ins for the computation of an answer, for a process that imports them by name."""

import os
import signal
import time

import numpy as np


def by_domain(model, question, limits):
    """Sleeps, dies, tells its limit, or answers, as the question's domain says."""
    if question.domain == "sleep":
        time.sleep(600)
    if question.domain == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if question.domain == "memory":
        raise MemoryError
    return {"pixels": limits.pixels, "threads": np.arange(2)}
