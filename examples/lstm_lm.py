"""An LSTM that learns a sequence of six numbers by heart, and then says it.

The words are the numbers 0 to 42, and 0 means "begin". One table of embeddings, [43, 17], is used at both ends: its row
is what the LSTM reads, and the product of the LSTM's output with every row is how likely each word is to come next. The
state that the LSTM begins with is learnt too. In training the sequence is read in pieces of three, as one would read a
text too long to keep: the state goes on from piece to piece, the gradient does not.

    pip install hkx tyro && python lstm_lm.py
    python examples/lstm_lm.py --seed 7

prints

    epoch   0: loss 26.07
    epoch  25: loss 0.36
    epoch  50: loss 0.14
    epoch  75: loss 0.09
    epoch 100: loss 0.06
    module                          parameters
    language_model                  cell (17,), hidden (17,)
    language_model/~/embed          embeddings (43, 17)
    language_model/~/lstm/linear    b (68,), w (34, 68)
    4 8 15 16 23 42
"""

import dataclasses
import sys
from typing import Any

try:
    import jax
    import jax.numpy as jnp
    import tyro

    import hkx
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'hkx[examples]'")


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0  # seed of the initial parameters
    epochs: int = 101  # times that the sequence is read
    learning_rate: float = 0.1  # size of a step of gradient descent
    piece: int = 3  # words that a gradient reaches back over


SEQUENCE = jnp.array([4, 8, 15, 16, 23, 42])  # [T]
BEGIN, VOCABULARY, DIMENSION = 0, 43, 17


class LanguageModel(hkx.Module):
    """Words, [T], and the state before them, to the logits of the words that follow, [T, 43], and the state after."""

    def __init__(self, name: str | None = None):
        super().__init__(name)
        self.embed = hkx.Embed(VOCABULARY, DIMENSION)
        self.core = hkx.LSTM(DIMENSION)

    def initial_state(self) -> hkx.LSTMState:
        """Two vectors like any other parameter, where `self.core.initial_state` would give zeros."""
        hidden = hkx.get_parameter("hidden", [DIMENSION], init=jnp.zeros)
        cell = hkx.get_parameter("cell", [DIMENSION], init=jnp.zeros)
        return hkx.LSTMState(hidden, cell)

    def __call__(self, words: jax.Array, state: hkx.LSTMState) -> tuple[jax.Array, hkx.LSTMState]:
        outputs, state = hkx.dynamic_unroll(self.core, self.embed(words), state)
        return outputs @ self.embed.embeddings.T, state


def sequence_loss(sequence: jax.Array, piece: int) -> jax.Array:
    """The sum over the sequence of - log p(word | the words before it), with gradients that stay within a piece."""
    model = LanguageModel()
    state, loss = model.initial_state(), jnp.zeros([])
    before = jnp.concatenate([jnp.array([BEGIN]), sequence[:-1]])
    for i in range(0, len(sequence), piece):
        logits, state = model(before[i : i + piece], state)
        log_p = jax.nn.log_softmax(logits)
        loss -= jnp.take_along_axis(log_p, sequence[i : i + piece, None], axis=1).sum()
        state = jax.lax.stop_gradient(state)
    return loss


def greedy_decoding(length: int) -> jax.Array:
    """The most likely word after "begin", the most likely one after that, and so on: [length]."""
    model = LanguageModel()  # of the same name as in `sequence_loss`, so it uses the same parameters

    def step(carry: tuple[jax.Array, hkx.LSTMState], _: None) -> tuple[tuple[jax.Array, hkx.LSTMState], jax.Array]:
        word, state = carry
        logits, state = model(word[None], state)
        word = jnp.argmax(logits[0])
        return (word, state), word

    return hkx.scan(step, (jnp.array(BEGIN), model.initial_state()), None, length=length)[1]


loss_model = hkx.without_apply_rng(hkx.transform(sequence_loss))
decoding_model = hkx.without_apply_rng(hkx.transform(greedy_decoding))


def main(config: Config) -> dict[str, Any]:
    """Trains, decodes and prints. Returns the losses, the words and the parameters."""

    @jax.jit
    def step(params: hkx.Params) -> tuple[hkx.Params, jax.Array]:
        loss, gradient = jax.value_and_grad(loss_model.apply)(params, SEQUENCE, config.piece)
        return jax.tree.map(lambda p, g: p - config.learning_rate * g, params, gradient), loss

    params = loss_model.init(jax.random.key(config.seed), SEQUENCE, config.piece)
    losses: list[float] = []
    for epoch in range(config.epochs):
        params, loss = step(params)
        losses.append(float(loss))
        if epoch % 25 == 0:
            print(f"epoch {epoch:3}: loss {losses[-1]:.2f}")

    print(f"{'module':32}parameters")
    for module, arrays in params.items():
        print(f"{module:32}{', '.join(f'{name} {array.shape}' for name, array in arrays.items())}")
    words = [int(word) for word in jax.jit(decoding_model.apply, static_argnums=1)(params, len(SEQUENCE))]
    print(*words)
    return {"losses": losses, "words": words, "params": params}


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
