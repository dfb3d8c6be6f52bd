import numpy as np

from olp_ray.serve.lengths import OutputLengths


def test_the_same_prompt_and_seeds_give_the_same_length_and_others_others():
    lengths = OutputLengths("lmsys", seed=1, most_tokens=1000)
    drawn = [lengths.draw(f"prompt {i}", 0, None) for i in range(200)]
    assert drawn == [OutputLengths("lmsys", 1, 1000).draw(f"prompt {i}", 0, None) for i in range(200)]
    assert len(set(drawn)) > 50
    assert drawn != [lengths.draw(f"prompt {i}", 7, None) for i in range(200)]


def test_max_tokens_cuts_and_the_prediction_is_the_mean_under_the_cut():
    lengths = OutputLengths("lmsys", seed=1, most_tokens=1000)
    cut = [lengths.draw(f"prompt {i}", 0, 100) for i in range(2000)]
    assert max(cut) == 100
    assert min(cut) >= 1
    assert abs(np.mean(cut) - lengths.predict(100)) < 3
    assert lengths.predict(10) < lengths.predict(100) < lengths.predict(None) < 1000
