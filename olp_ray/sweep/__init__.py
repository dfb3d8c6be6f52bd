"""Many runs: one trial, a comparison of policies, a sweep over weights on Ray Tune, and the front of its results.

Only `run` may import ray. What is measured here lives in `olp_ray.report`, what is run in `olp_ray.sim`.
"""
