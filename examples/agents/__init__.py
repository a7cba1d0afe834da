"""Agents, each in one file: `make(Config(), observation_spec, action_spec)` gives the functions of `agent.py`."""

from types import ModuleType

from . import actor_critic, boot_dqn, c51, dqn, muzero, ppo, q_lambda, quantile, r2d2, sac, td3

FILES: dict[str, ModuleType] = {
    "actor_critic": actor_critic,
    "boot_dqn": boot_dqn,
    "c51": c51,
    "dqn": dqn,
    "muzero": muzero,
    "ppo": ppo,
    "q_lambda": q_lambda,
    "quantile": quantile,
    "r2d2": r2d2,
    "sac": sac,
    "td3": td3,
}
