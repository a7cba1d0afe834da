"""How the parameters of a decoder are divided over a mesh of devices."""

from __future__ import annotations

from jax.sharding import PartitionSpec as P

from hkx.nets.decoder_config import DecoderConfig


def decoder_sharding_rules(
    config: DecoderConfig, *, stacked: bool = True, data: str | None = "data", model: str | None = "model"
) -> list[tuple[str, P]]:
    """Rules for `hkx.sharding.shardings` that divide the parameters of a `hkx.nets.Decoder` over two axes of a mesh.

    Along `model`, the first maps of attention and feed-forward layers are divided by their outputs, heads or hidden
    units, and the last ones by their inputs, so that the values between them stay where they are (tensor parallelism).
    Along `data`, every device holds a part of each matrix until a layer needs it (FSDP).

    References: Shoeybi et al. (2019), "Megatron-LM", arXiv:1909.08053; Rajbhandari et al. (2019), "ZeRO: memory
    optimizations toward training trillion parameter models", arXiv:1910.02054.

    Args:
      config: the configuration.
      stacked: whether the layers are stacked.
      data: the mesh axis for FSDP; None for none.
      model: the mesh axis for tensor parallelism; None for none.

    Returns:
      A list of pairs of a pattern and a `jax.sharding.PartitionSpec`.

    Example:

      >>> import hkx
      >>> config = hkx.nets.DecoderConfig(vocab_size=256, hidden_size=64, num_layers=2, num_heads=4)
      >>> for pattern, spec in hkx.nets.decoder_sharding_rules(config):
      ...     print(pattern, spec)
      .*/embed/embeddings|[^/]*/head P('model', 'data')
      .*/(query|query_up|key|value|gate|up)/w P(None, 'data', 'model')
      .*/(output|down)/w P(None, 'model', 'data')
    """
    layer = (None,) if stacked else ()
    rules = [
        (r".*/embed/embeddings|[^/]*/head", P(model, data)),
        (r".*/(query|query_up|key|value|gate|up)/w", P(*layer, data, model)),
        (r".*/(output|down)/w", P(*layer, model, data)),
    ]
    if config.experts is not None:
        rules += [
            (r".*/experts/(gate|up)", P(*layer, None, data, model)),
            (r".*/experts/down", P(*layer, None, model, data)),
        ]
    if config.latent is not None:
        rules += [(r".*/kv_up", P(*layer, data, model)), (r".*/(query|kv)_down/w", P(*layer, data))]
    return rules
