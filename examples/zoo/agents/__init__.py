"""Agents, each in its own file: `make(Config(), observation_spec, action_spec)` returns an `Agent` (see `agent.py`)."""

from types import ModuleType

from . import actor_critic, boot_dqn, c51, dqn, impala, mpo, quantile, r2d2, sac, stream_q

FILES: dict[str, ModuleType] = {
    "actor_critic": actor_critic,
    "boot_dqn": boot_dqn,
    "c51": c51,
    "dqn": dqn,
    "impala": impala,
    "mpo": mpo,
    "quantile": quantile,
    "r2d2": r2d2,
    "sac": sac,
    "stream_q": stream_q,
}
