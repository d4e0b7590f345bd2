"""One file per command; each class is the command's options, ``run`` does it.  No heavy import at module level."""
