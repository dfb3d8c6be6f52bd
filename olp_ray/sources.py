"""What this installation's kernels are written as, in one word, so that code compiled from another text is not run.

The core reads no files: it is told by `olp_ray/__init__.py`, which runs before any of its modules. Nothing is compiled
or kept here.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

KERNELS = Path(__file__).parent / "core" / "kernels"


@functools.cache
def kernels_digest() -> str:
    """Of the names and texts of all files that kernels are written in."""
    found = hashlib.sha256()
    for path in sorted(KERNELS.glob("*.py")):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()
