"""The `olp-ray` command. Thin: each command reads its flags, calls one function, and prints what it returned."""

from olp_ray.cli.group import main

__all__ = ["main"]
