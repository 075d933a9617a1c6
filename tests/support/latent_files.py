"""Small models with a latent code to save, and a model of sentences that reconstructs what it was taught."""

import torch

from understudy.data import Vocabulary
from understudy.nets.latent import LatentModel, SentenceDecoder, SentenceEncoder, initialise

WORDS = ("the", "film", "is", "good", "bad", ".", "very", "!")
SENTENCES = (
    "the film is good .",
    "the film is bad .",
    "very good !",
    "very bad",
    "good film .",
    "is the film bad",
)


def sentence_model(seed: int = 0, *, resamples: int = 1, longest: int = 5, words: int = len(WORDS)) -> LatentModel:
    """A model of sentences with random weights."""
    encoder, infer = (SentenceEncoder(words + 1, 4, 6, 2) for _ in range(2))
    decoder = SentenceDecoder(words + 1, 4, 6, 2, longest)
    return initialise(LatentModel(encoder, decoder, infer, likelihood="sequence", latent=2, resamples=resamples), seed)


def taught_model(*, resamples: int = 1) -> LatentModel:
    """A model that decodes the mean codes of `SENTENCES` to these sentences, and codes near them likewise.

    Only the last layer of the decoder is fitted, by least squares: its 36 states have 64 coordinates.
    """
    encoder, infer = (SentenceEncoder(len(WORDS) + 1, 8, 24, 3) for _ in range(2))
    decoder = SentenceDecoder(len(WORDS) + 1, 8, 64, 3, 5)
    model = LatentModel(encoder, decoder, infer, likelihood="sequence", latent=3, resamples=resamples)
    initialise(model, 1)
    x = Vocabulary(WORDS, 5).encode(SENTENCES)
    with torch.no_grad():
        for each in (encoder.embedding, decoder.embedding):
            each.weight.mul_(10)
        encoder.output.weight[:3] *= 8
        decoder.layer.weight_ih.mul_(4)
        encoder.output.weight[3:], encoder.output.bias[3:] = 0, -12
        states = []
        decoder.output.register_forward_pre_hook(lambda _, given: states.append(given[0]))
        decoder(model.encode(x).mean, x)
        inputs = torch.nn.functional.pad(states[0].flatten(0, 1), (0, 1), value=1).double()
        wanted = 12 * torch.nn.functional.one_hot(x.flatten(), len(WORDS) + 1).double()
        fitted = torch.linalg.lstsq(inputs, wanted, driver="gelsd").solution.T.float()
        decoder.output.weight.copy_(fitted[:, :-1])
        decoder.output.bias.copy_(fitted[:, -1])
    decoder.output._forward_pre_hooks.clear()
    return model
