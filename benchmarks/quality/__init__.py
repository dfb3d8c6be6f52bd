"""How good is the router: a matrix of scenarios, every baseline, one preset per metric, and the gates they must pass.

    python -m benchmarks.quality --traces DIR --out DIR      the matrix; resumes where it stopped
    python -m benchmarks.quality --quick                     a minute's worth, on built-in lengths

`cells` says what is simulated, `entries` which policies, `runs` runs and remembers, `verdicts` compares, `page` writes.
"""
