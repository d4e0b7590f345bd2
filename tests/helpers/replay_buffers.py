"""Domains of grey frames for replay."""

from helpers.methods_toy import toy_domain


def domain_of(name, count, depth):
    return toy_domain(name, [(0.01 * i, depth) for i in range(count)])
