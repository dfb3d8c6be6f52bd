"""Fitted token-length distributions: mixtures of lognormals, as constants. Sampling is in `generators`.

Sources: fits of this project to LMSYS-Chat-1M summary samples (word counts; the data set itself may not be passed on),
chat arena samples of the VTC artifact (Apache-2.0), AzurePublicDataset 2023 (CC-BY-4.0) and Mooncake (Apache-2.0).
`chat1m` is recalled from published summary statistics of LMSYS-Chat-1M, not fitted to a file. See NOTICE.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LengthFit:
    """Weights, means and sigmas of log(tokens); lengths above `limit` are drawn again.

    spike is (first, last, probability) of lengths that the publisher's limit piled up. scale turns words into tokens.
    """

    weights: tuple[float, ...]
    mu: tuple[float, ...]
    sigma: tuple[float, ...]
    limit: float | None = None
    spike: tuple[int, int, float] | None = None
    scale: float = 1.0


TOKENS_PER_WORD = 1.3

FITS: dict[str, LengthFit] = {
    "lmsys_prompt_words": LengthFit(
        (0.1071, 0.7406, 0.1523),
        (0.757, 2.9936, 5.4515),
        (2.2, 0.9897, 0.5641),
        limit=499.0,
        scale=TOKENS_PER_WORD,
    ),
    "lmsys_output_words": LengthFit(
        (0.0433, 0.6023, 0.3545),
        (-1.3932, 4.3308, 5.4811),
        (2.1179, 1.6116, 0.553),
        limit=599.0,
        scale=TOKENS_PER_WORD,
    ),
    "lmsys_first_turn_output_tok": LengthFit(
        (0.5316, 0.4684),
        (3.934, 5.7662),
        (1.4472, 0.5433),
        limit=511.0,
    ),
    "arena_prompt_tok": LengthFit(
        (0.506, 0.494),
        (2.657, 5.3551),
        (1.1077, 1.3492),
        limit=1023.0,
    ),
    "arena_output_tok": LengthFit(
        (0.5796, 0.2557, 0.1647),
        (4.1246, 5.3772, 6.0028),
        (1.5215, 0.5934, 0.2046),
        limit=1023.0,
        spike=(511, 514, 0.1553),
    ),
    "azure_code_prompt": LengthFit(
        (0.2431, 0.7569),
        (7.4925, 7.598),
        (0.4843, 2.0731),
        limit=7434.0,
        spike=(7435, 7437, 0.0365),
    ),
    "azure_code_output": LengthFit(
        (0.6584, 0.3416),
        (2.3652, 3.6038),
        (0.3822, 0.8993),
    ),
    "azure_conv_output": LengthFit(
        (0.4252, 0.2956, 0.2792),
        (4.5723, 4.7292, 6.006),
        (0.3568, 1.0098, 0.0487),
    ),
    "mooncake_conv_output": LengthFit(
        (0.3384, 0.6616),
        (4.0207, 6.0076),
        (1.627, 0.3457),
    ),
    "chat1m_prompt": LengthFit((1.0,), (6.089,), (1.192,)),
    "chat1m_output": LengthFit((1.0,), (4.913,), (0.955,)),
}
