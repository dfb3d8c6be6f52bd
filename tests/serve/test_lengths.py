import numpy as np
import pytest

from olp_ray.core.types import Request
from olp_ray.serve.lengths import OutputLengths


def predicted(lengths, limit):
    return lengths.predicted(Request("r", 0.0, 10, 1.0, max_output_tokens=limit)).predicted_output_tokens


def test_the_same_prompt_and_seeds_give_the_same_length_and_others_others():
    lengths = OutputLengths("lmsys", seed=1, most_tokens=1000, predictor="mean")
    drawn = [lengths.draw(f"prompt {i}", 0, None) for i in range(200)]
    assert drawn == [OutputLengths("lmsys", 1, 1000, "mean").draw(f"prompt {i}", 0, None) for i in range(200)]
    assert len(set(drawn)) > 50
    assert drawn != [lengths.draw(f"prompt {i}", 7, None) for i in range(200)]


def test_max_tokens_cuts_and_the_prediction_is_the_mean_under_the_cut():
    lengths = OutputLengths("lmsys", seed=1, most_tokens=1000, predictor="mean")
    cut = [lengths.draw(f"prompt {i}", 0, 100) for i in range(2000)]
    assert max(cut) == 100
    assert min(cut) >= 1
    assert abs(np.mean(cut) - predicted(lengths, 100)) < 3
    assert predicted(lengths, 10) < predicted(lengths, 100) < predicted(lengths, None) < 1000


def test_the_cap_is_the_limit_or_the_most():
    lengths = OutputLengths("lmsys", seed=1, most_tokens=1000, predictor="cap")
    assert (predicted(lengths, 10), predicted(lengths, None)) == (10, 1000)


def test_online_comes_to_the_mean_by_completions_alone():
    lengths = OutputLengths("lmsys", seed=1, most_tokens=1000, predictor="online")
    known = OutputLengths("lmsys", seed=1, most_tokens=1000, predictor="mean")
    assert predicted(lengths, None) == 256
    for i in range(500):
        lengths.learn(Request(f"r{i}", 0.0, 10, 1.0), lengths.draw(f"prompt {i}", 0, None))
    assert predicted(lengths, None) == pytest.approx(predicted(known, None), rel=0.15)
