"""The registry of operators: one entry for each, which says how to call it and what to expect of it.

The oracle of an entry is the NumPy function of its name in `rlax_oracles`, `beyond_rlax_oracles` or `recent_oracles`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import beyond_rlax_oracles
import language_oracles
import mpo_oracles
import newer_oracles
import numpy as np
import recent_oracles
import rlax_oracles

import rlx

T, A, K, L, D = 6, 3, 6, 4, 4  # steps, actions, atoms, atoms of the target, dimensions
N, M, G = 4, 2, 3  # samples, critics, members of a group
BINS = {"min_value": -3.0, "max_value": 3.0, "num_bins": K}
SIGMA = 0.75 * 6.0 / K
HOMES = (rlax_oracles, beyond_rlax_oracles, newer_oracles, mpo_oracles, recent_oracles, language_oracles)


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    name: str
    make: Callable[..., dict[str, Any]]  # (rng) or, with `sequence`, (rng, steps) -> array arguments, in float64
    learns: tuple[str, ...] = ()  # arguments that gradients flow to by default
    stopped: tuple[str, ...] = ()  # arguments that are constants to gradients, unless the flag is false
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)  # further arguments, not arrays
    oracle_settings: dict[str, Any] | None = None  # the oracle's, where they are not `settings`
    free: tuple[str, ...] = ()  # arguments of any shape, or that broadcast: no wrong rank or length exists
    multi: bool = False  # a multi-step operator of RLax, which takes `truncation_t`
    sequence: bool = False  # `make` takes a number of steps
    masks: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)  # mask -> the arguments it shields
    wide: bool = False  # results are in float32 or wider even if arguments are in half precision
    inner_constants: bool = False  # parts of the value are constants to gradients even where nothing is `stopped`
    call: Callable[..., Any] | None = None  # (package, **arguments), where arrays are inside of structures
    built: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)  # structure -> the arrays inside

    @property
    def inside(self):
        """The arguments that are inside of structures."""
        return {name for names in self.built.values() for name in names}

    def run(self, arguments, package=rlx, **more):
        settings = {name: translate(value, package) for name, value in self.settings.items()}
        if self.call is not None:
            return self.call(package, **arguments, **settings, **more)
        return getattr(package, self.name)(**arguments, **settings, **more)

    def oracle(self, arguments, **more):
        home = next(m for m in HOMES if hasattr(m, self.name))
        settings = self.settings if self.oracle_settings is None else self.oracle_settings
        return getattr(home, self.name)(**{**arguments, **settings, **more})


class Pair:
    """A pair of transforms by name, so that each library gets its own."""

    def __init__(self, name):
        self.name = name

    def apply(self, x):
        return getattr(rlax_oracles, self.name)[0](x)

    def apply_inv(self, x):
        return getattr(rlax_oracles, self.name)[1](x)


def translate(value, package):
    return getattr(package, value.name) if isinstance(value, Pair) else value


def normal(rng, *shape):
    return np.asarray(rng.normal(size=shape))


def unit(rng, *shape):
    return np.asarray(rng.uniform(0.1, 0.9, size=shape))


def positive(rng, *shape):
    return np.asarray(rng.uniform(0.3, 1.8, size=shape))


def probs(rng, *shape):
    x = rng.uniform(0.1, 1.0, size=shape)
    return x / x.sum(-1, keepdims=True)


def action(rng, *shape):
    return np.asarray(rng.integers(0, A, size=shape), np.int32)


def discount(rng, *shape):
    """Discounts with an episode's end now and then."""
    return np.asarray(rng.uniform(0.5, 1.0, size=shape) * (rng.uniform(size=shape) < 0.8))


def atoms(rng, n):
    return np.linspace(-2.0, 2.0, n) + rng.uniform(-0.1, 0.1, size=n)


def step(rng):
    return {"a_tm1": action(rng), "r_t": normal(rng), "discount_t": discount(rng)}


def rewards(rng):
    return {"r_t": normal(rng, T), "discount_t": discount(rng, T)}


def q_step(rng, **more):
    return {"q_tm1": normal(rng, A), **step(rng), **{name: make(rng) for name, make in more.items()}}


def q_sequence(rng):
    return {"q_tm1": normal(rng, T, A), "a_tm1": action(rng, T), **rewards(rng)}


def retrace(rng):
    more = {"q_t": normal(rng, T, A), "a_t": action(rng, T), "pi_t": probs(rng, T, A), "mu_t": unit(rng, T)}
    return {**q_sequence(rng), **more, "lambda_": unit(rng)}


def continuous_retrace(rng):
    values = {"q_tm1": normal(rng, T), "q_t": normal(rng, T - 1), "v_t": normal(rng, T)}
    return {**values, **rewards(rng), "log_rhos": 0.5 * normal(rng, T - 1), "lambda_": unit(rng)}


def off_policy(rng):
    more = {"c_t": unit(rng, T), "pi_t": probs(rng, T, A)}
    return {"q_t": normal(rng, T, A), "a_t": action(rng, T), **rewards(rng), **more}


def q_and_v(rng):
    return {"q_t": normal(rng, T - 1), "v_t": normal(rng, T), **rewards(rng), "c_t": unit(rng, T - 1)}


def vtrace(rng):
    values = {"v_tm1": normal(rng, T), "v_t": normal(rng, T)}
    return {**values, **rewards(rng), "rho_tm1": positive(rng, T), "lambda_": unit(rng, T)}


def categorical(rng, *actions):
    now = {"q_atoms_tm1": atoms(rng, K), "q_logits_tm1": normal(rng, A, K)}
    return {**now, **step(rng), "q_atoms_t": atoms(rng, L), "q_logits_t": normal(rng, A, L)}


def quantile(rng):
    return {"dist_q_tm1": normal(rng, K, A), "tau_q_tm1": np.sort(unit(rng, K)), **step(rng)}


def log_probs(rng, *shape):
    return np.asarray(-rng.uniform(0.2, 2.0, size=shape))


def mask(rng, *shape):
    drawn = rng.uniform(size=shape) < 0.6
    if drawn.size:
        drawn.flat[0], drawn.flat[-1] = True, drawn.size == 1
    return np.asarray(drawn)


def transition(rng):
    return {"a_tm1": action(rng), "r_t": normal(rng), "discount_t": unit(rng)}


def ratios(rng, *shape):
    """Log-probabilities of two policies, with ratios on both sides of every clip."""
    old = log_probs(rng, *shape)
    return {"log_probs_t": old + 0.4 * normal(rng, *shape), "old_log_probs_t": old}


def pair(rng, length):
    chosen, rejected = log_probs(rng, length), log_probs(rng, length + 2)
    return {
        "chosen_log_probs_t": chosen,
        "rejected_log_probs_t": rejected,
        "ref_chosen_log_probs_t": chosen + 0.3 * normal(rng, length),
        "ref_rejected_log_probs_t": rejected + 0.3 * normal(rng, length + 2),
        "chosen_mask_t": mask(rng, length),
        "rejected_mask_t": mask(rng, length + 2),
    }


def answers(rng, length):
    return {name: value for name, value in pair(rng, length).items() if not name.startswith("ref_")}


PAIR_LEARNS = ("chosen_log_probs_t", "rejected_log_probs_t")
PAIR_STOPPED = ("ref_chosen_log_probs_t", "ref_rejected_log_probs_t")
PAIR_MASKS = {
    "chosen_mask_t": ("chosen_log_probs_t", "ref_chosen_log_probs_t"),
    "rejected_mask_t": ("rejected_log_probs_t", "ref_rejected_log_probs_t"),
}
ANSWER_MASKS = {mask: names[:1] for mask, names in PAIR_MASKS.items()}
GRPO_MASK = {"mask_t": ("log_probs_t", "old_log_probs_t", "ref_log_probs_t")}
LATENT_MASK = {"mask_t": ("predictions_t", "targets_t")}


def grpo(rng, length):
    both = ratios(rng, length)
    reference = both["old_log_probs_t"] + 0.3 * normal(rng, length)
    return {**both, "adv_t": normal(rng), "mask_t": mask(rng, length), "ref_log_probs_t": reference}


def group(rng, length):
    return {**ratios(rng, G, length), "adv": normal(rng, G), "mask_t": mask(rng, G, length)}


def hl_gauss_labels(x):
    return beyond_rlax_oracles.hl_gauss(min(max(x, -3.0), 3.0), -3.0, 3.0, K, SIGMA)


TARGET = ("r_t", "discount_t")

ONE_STEP = [
    Case("td_learning", lambda r: {"v_tm1": normal(r), "r_t": normal(r), "discount_t": discount(r), "v_t": normal(r)},
         ("v_tm1",), (*TARGET, "v_t")),
    Case("qv_max", lambda r: {"v_tm1": normal(r), "r_t": normal(r), "discount_t": discount(r), "q_t": normal(r, A)},
         ("v_tm1",), (*TARGET, "q_t")),
    Case("q_learning", lambda r: {**q_step(r), "q_t": normal(r, A)}, ("q_tm1",), (*TARGET, "q_t")),
    Case("double_q_learning", lambda r: {**q_step(r), "q_t_value": normal(r, A), "q_t_selector": normal(r, A)},
         ("q_tm1",), (*TARGET, "q_t_value")),
    Case("persistent_q_learning", lambda r: {**q_step(r), "q_t": normal(r, A), "action_gap_scale": unit(r)},
         ("q_tm1",), (*TARGET, "q_t", "action_gap_scale")),
    Case("sarsa", lambda r: {**q_step(r), "q_t": normal(r, A), "a_t": action(r)}, ("q_tm1",), (*TARGET, "q_t")),
    Case("expected_sarsa", lambda r: {**q_step(r), "q_t": normal(r, A), "probs_a_t": probs(r, A)},
         ("q_tm1",), (*TARGET, "q_t", "probs_a_t")),
    Case("qv_learning", lambda r: {**q_step(r), "v_t": normal(r)}, ("q_tm1",), (*TARGET, "v_t")),
]  # fmt: skip

MULTI_STEP = [
    Case("lambda_returns", lambda r: {**rewards(r), "v_t": normal(r, T), "lambda_": unit(r)},
         (*TARGET, "v_t", "lambda_"), multi=True),
    Case("discounted_returns", lambda r: {**rewards(r), "v_t": normal(r)}, (*TARGET, "v_t"), multi=True),
    Case("n_step_bootstrapped_returns", lambda r: {**rewards(r), "v_t": normal(r, T), "lambda_t": unit(r, T)},
         (*TARGET, "v_t", "lambda_t"), settings={"n": 3}, multi=True),
    Case("truncated_generalized_advantage_estimation",
         lambda r: {**rewards(r), "lambda_": unit(r), "values": normal(r, T + 1)},
         (*TARGET, "lambda_", "values"), multi=True),
    Case("importance_corrected_td_errors",
         lambda r: {**rewards(r), "rho_tm1": positive(r, T), "lambda_": unit(r), "values": normal(r, T + 1)},
         (*TARGET, "rho_tm1", "lambda_", "values"), multi=True),
    Case("general_off_policy_returns_from_action_values", off_policy, ("q_t", *TARGET, "c_t", "pi_t"), multi=True),
    Case("general_off_policy_returns_from_q_and_v", q_and_v, ("q_t", "v_t", *TARGET, "c_t"), multi=True),
    Case("vtrace", vtrace, ("v_tm1",), ("v_t", *TARGET, "rho_tm1", "lambda_"), multi=True, inner_constants=True),
    Case("leaky_vtrace", lambda r: {**vtrace(r), "alpha_": unit(r)},
         ("v_tm1",), ("v_t", *TARGET, "rho_tm1", "lambda_", "alpha_"), multi=True, inner_constants=True),
    Case("vtrace_td_error_and_advantage", vtrace, ("v_tm1", *TARGET),
         settings={"clip_rho_threshold": 1.2, "clip_pg_rho_threshold": 0.9}, multi=True, inner_constants=True),
    Case("leaky_vtrace_td_error_and_advantage", lambda r: {**vtrace(r), "alpha": unit(r)}, ("v_tm1", *TARGET),
         multi=True, inner_constants=True),
    Case("td_lambda", lambda r: {"v_tm1": normal(r, T), **rewards(r), "v_t": normal(r, T), "lambda_": unit(r)},
         ("v_tm1",), (*TARGET, "v_t", "lambda_"), multi=True),
    Case("q_lambda", lambda r: {**q_sequence(r), "q_t": normal(r, T, A), "lambda_": unit(r, T)},
         ("q_tm1",), (*TARGET, "q_t", "lambda_"), multi=True),
    Case("sarsa_lambda",
         lambda r: {**q_sequence(r), "q_t": normal(r, T, A), "a_t": action(r, T), "lambda_": unit(r)},
         ("q_tm1",), (*TARGET, "q_t", "lambda_"), multi=True),
    Case("retrace", retrace, ("q_tm1",), ("q_t", *TARGET, "pi_t", "mu_t", "lambda_"), multi=True),
    Case("retrace_continuous", continuous_retrace, ("q_tm1",), ("q_t", "v_t", *TARGET, "log_rhos", "lambda_"),
         multi=True),
    Case("transformed_q_lambda", lambda r: {**q_sequence(r), "q_t": normal(r, T, A), "lambda_": unit(r)},
         ("q_tm1",), (*TARGET, "q_t", "lambda_"), settings={"tx_pair": Pair("SIGNED_HYPERBOLIC_PAIR")}, multi=True),
    Case("transformed_n_step_q_learning",
         lambda r: {**q_sequence(r), "target_q_t": normal(r, T, A), "a_t": action(r, T)},
         ("q_tm1",), (*TARGET, "target_q_t"), settings={"n": 2, "tx_pair": Pair("SIGNED_LOGP1_PAIR")}, multi=True),
    Case("transformed_retrace", retrace, ("q_tm1",), ("q_t", *TARGET, "pi_t", "mu_t", "lambda_"),
         settings={"tx_pair": Pair("SIGNED_LOGP1_PAIR")}, multi=True),
]  # fmt: skip

DISTRIBUTIONAL = [
    Case("categorical_l2_project", lambda r: {"z_p": 1.5 * normal(r, L), "probs": probs(r, L), "z_q": atoms(r, K)},
         ("probs", "z_p")),
    Case("categorical_td_learning",
         lambda r: {"v_atoms_tm1": atoms(r, K), "v_logits_tm1": normal(r, K), "r_t": normal(r),
                    "discount_t": discount(r), "v_atoms_t": atoms(r, L), "v_logits_t": normal(r, L)},
         ("v_logits_tm1",), (*TARGET, "v_logits_t")),
    Case("categorical_q_learning", categorical, ("q_logits_tm1",), (*TARGET, "q_logits_t")),
    Case("categorical_double_q_learning", lambda r: {**categorical(r), "q_t_selector": normal(r, A)},
         ("q_logits_tm1",), (*TARGET, "q_logits_t")),
    Case("quantile_regression_loss",
         lambda r: {"dist_src": normal(r, K), "tau_src": np.sort(unit(r, K)), "dist_target": normal(r, L)},
         ("dist_src",), ("dist_target",), settings={"huber_param": 0.7}),
    Case("quantile_q_learning",
         lambda r: {**quantile(r), "dist_q_t_selector": normal(r, L, A), "dist_q_t": normal(r, K, A)},
         ("dist_q_tm1",), (*TARGET, "dist_q_t")),
    Case("quantile_expected_sarsa",
         lambda r: {**quantile(r), "dist_q_t": normal(r, L, A), "probs_a_t": probs(r, A)},
         ("dist_q_tm1",), (*TARGET, "dist_q_t", "probs_a_t"), settings={"huber_param": 1.0}),
]  # fmt: skip

POLICIES = [
    Case("policy_gradient_loss",
         lambda r: {"logits_t": normal(r, T, A), "a_t": action(r, T), "adv_t": normal(r, T), "w_t": unit(r, T)},
         ("logits_t",), ("adv_t",)),
    Case("entropy_loss", lambda r: {"logits_t": normal(r, T, A), "w_t": unit(r, T)}, ("logits_t",)),
    Case("qpg_loss", lambda r: {"logits_t": normal(r, T, A), "q_t": normal(r, T, A)}, ("logits_t",),
         inner_constants=True),
    Case("rm_loss", lambda r: {"logits_t": normal(r, T, A), "q_t": normal(r, T, A)}, ("logits_t",),
         inner_constants=True),
    Case("rpg_loss", lambda r: {"logits_t": normal(r, T, A), "q_t": normal(r, T, A)}, ("logits_t",), ("q_t",)),
    Case("clipped_surrogate_pg_loss", lambda r: {"prob_ratios_t": positive(r, T), "adv_t": normal(r, T)},
         ("prob_ratios_t",), ("adv_t",), settings={"epsilon": 0.2}),
    Case("dpg_loss", lambda r: {"a_t": normal(r, D), "dqda_t": 2 * normal(r, D)}, ("a_t",), ("dqda_t",),
         settings={"dqda_clipping": 1.0}, inner_constants=True),
]  # fmt: skip

ANY = [
    Case("l2_loss", lambda r: {"predictions": normal(r, 2, 3), "targets": normal(r, 2, 3)},
         ("predictions", "targets"), free=("predictions", "targets")),
    Case("expectile_loss", lambda r: {"predictions": normal(r, 3), "targets": normal(r, 3), "expectile": unit(r)},
         ("predictions", "targets", "expectile"), free=("predictions", "targets", "expectile")),
    Case("likelihood", lambda r: {"predictions": unit(r, 3), "targets": unit(r, 3)}, ("predictions", "targets"),
         free=("predictions", "targets")),
    Case("log_loss", lambda r: {"predictions": unit(r, 3), "targets": unit(r, 3)}, ("predictions", "targets"),
         free=("predictions", "targets")),
    Case("huber_loss", lambda r: {"x": 2 * normal(r, 5)}, ("x",), settings={"delta": 1.3}, free=("x",)),
    *(Case(name, lambda r: {"x": normal(r, 3)}, ("x",), free=("x",)) for name in (
        "identity", "sigmoid", "signed_logp1", "signed_expm1", "signed_hyperbolic", "signed_parabolic",
        "hyperbolic_sin", "hyperbolic_arcsin")),
    Case("logit", lambda r: {"x": unit(r, 3)}, ("x",), free=("x",)),
    Case("power", lambda r: {"x": normal(r, 3)}, ("x",), settings={"p": 0.4}, free=("x",)),
    Case("transform_to_2hot", lambda r: {"scalar": 1.5 * normal(r, 3)}, ("scalar",),
         settings={"min_value": -2.0, "max_value": 2.0, "num_bins": 6}, free=("scalar",)),
    Case("transform_from_2hot", lambda r: {"probs": probs(r, 3, 6)}, ("probs",),
         settings={"min_value": -2.0, "max_value": 2.0, "num_bins": 6}, free=("probs",)),
    Case("categorical_cross_entropy", lambda r: {"labels": probs(r, 2, A), "logits": normal(r, 2, A)},
         ("labels", "logits"), free=("labels", "logits")),
    Case("categorical_kl_divergence", lambda r: {"p_logits": normal(r, 2, A), "q_logits": normal(r, 2, A)},
         ("p_logits", "q_logits"), settings={"temperature": 0.7}, free=("p_logits", "q_logits")),
    Case("categorical_importance_sampling_ratios",
         lambda r: {"pi_logits_t": normal(r, T, A), "mu_logits_t": normal(r, T, A), "a_t": action(r, T)},
         ("pi_logits_t", "mu_logits_t"), free=("pi_logits_t", "mu_logits_t", "a_t")),
    Case("multivariate_normal_kl_divergence",
         lambda r: {"mu_0": normal(r, D), "sigma_0": positive(r, D), "mu_1": normal(r, D), "sigma_1": positive(r, D)},
         ("mu_0", "sigma_0", "mu_1", "sigma_1"), free=("mu_0", "sigma_0", "mu_1", "sigma_1")),
    Case("batched_index", lambda r: {"values": normal(r, T, A), "indices": action(r, T)}, ("values",),
         free=("values", "indices")),
    Case("pixel_control_rewards", lambda r: {"observations": unit(r, T + 1, 4, 2, 3)}, ("observations",),
         settings={"cell_size": 2}),
    Case("pixel_control_loss",
         lambda r: {"observations": unit(r, T + 1, 4, 2, 3), "actions": action(r, T),
                    "action_values": normal(r, T + 1, 2, 1, A), "discount_factor": unit(r)},
         ("action_values",), settings={"cell_size": 2}, inner_constants=True),
    Case("feature_control_rewards", lambda r: {"features": normal(r, T + 1, D), "discount": unit(r)},
         ("features",), settings={"cumulant_type": "potential"}),
    Case("embed_oar", lambda r: {"features": normal(r, T, D), "action": action(r, T), "reward": normal(r, T)},
         ("features", "reward"), settings={"num_actions": A}),
]  # fmt: skip

NEW_VALUES = [
    Case("munchausen_q_learning", lambda r: {**transition(r), "q_tm1": normal(r, A), "q_t": normal(r, A),
             "target_q_tm1": normal(r, A), "temperature": np.asarray(0.4), "munchausen_scale": np.asarray(0.7),
             "clip_value_min": np.asarray(-1.5)}, ("q_tm1",), ("r_t", "discount_t", "q_t", "target_q_tm1")),
    Case("implicit_quantile_q_learning", lambda r: {**transition(r), "dist_q_tm1": normal(r, N, A),
             "tau_q_tm1": unit(r, N), "dist_q_t_selector": normal(r, D, A), "dist_q_t": normal(r, M, A),
             "huber_param": np.asarray(0.6)}, ("dist_q_tm1",), ("r_t", "discount_t", "dist_q_t")),
    Case("conservative_q_loss", lambda r: {"q_tm1": normal(r, A), "a_tm1": action(r), "temperature": np.asarray(0.5)},
         ("q_tm1",)),
    Case("sampled_conservative_q_loss", lambda r: {"sample_q_tm1": normal(r, N), "sample_log_probs_tm1": normal(r, N),
             "q_tm1": normal(r)}, ("sample_q_tm1", "q_tm1")),
    Case("conservative_q_learning", lambda r: {**transition(r), "q_tm1": normal(r, A), "q_t": normal(r, A),
             "conservative_weight": np.asarray(2.0)}, ("q_tm1",), ("r_t", "discount_t", "q_t")),
    Case("expectile_value_loss", lambda r: {"v_tm1": normal(r), "q_tm1": normal(r), "expectile": np.asarray(0.8)},
         ("v_tm1",), ("q_tm1",)),
    Case("clipped_double_q_learning", lambda r: {"q_tm1": normal(r, N), "r_t": normal(r), "discount_t": unit(r),
             "q_t": normal(r, M)}, ("q_tm1",), ("r_t", "discount_t", "q_t")),
    Case("sac_critic_loss", lambda r: {"q_tm1": normal(r, M), "r_t": normal(r), "discount_t": unit(r),
             "q_t": normal(r, M), "log_prob_t": normal(r), "temperature": unit(r)}, ("q_tm1",),
         ("r_t", "discount_t", "q_t", "log_prob_t", "temperature")),
    Case("sac_actor_loss", lambda r: {"q_t": normal(r, M), "log_prob_t": normal(r), "temperature": unit(r)},
         ("q_t", "log_prob_t"), ("temperature",)),
    Case("sac_temperature_loss", lambda r: {"temperature": unit(r), "log_prob_t": normal(r),
             "target_entropy": normal(r)}, ("temperature",), ("log_prob_t", "target_entropy")),
    Case("successor_feature_td", lambda r: {"psi_tm1": normal(r, D), "phi_t": normal(r, D), "discount_t": unit(r),
             "psi_t": normal(r, D)}, ("psi_tm1",), ("phi_t", "discount_t", "psi_t")),
    Case("successor_feature_q_learning", lambda r: {"psi_tm1": normal(r, A, D), "a_tm1": action(r),
             "phi_t": normal(r, D), "discount_t": unit(r), "psi_t": normal(r, A, D), "w": normal(r, D)}, ("psi_tm1",),
         ("phi_t", "discount_t", "psi_t")),
    Case("generalized_policy_improvement", lambda r: {"psi_t": normal(r, N, A, D), "w": normal(r, D)}, ("psi_t", "w")),
    Case("uvfa_td_learning", lambda r: {"v_tm1": normal(r, G), "r_t": normal(r, G), "discount_t": unit(r, G),
             "v_t": normal(r, G)}, ("v_tm1",), ("r_t", "discount_t", "v_t")),
    Case("uvfa_q_learning", lambda r: {"q_tm1": normal(r, G, A), "a_tm1": action(r), "r_t": normal(r, G),
             "discount_t": unit(r, G), "q_t": normal(r, G, A)}, ("q_tm1",), ("r_t", "discount_t", "q_t")),
    Case("classification_value_loss", lambda r: {"value_logits": normal(r, K), "target": normal(r)},
         ("value_logits",), ("target",), settings={"tx_pair": rlx.hl_gauss_pair(**BINS)},
         oracle_settings={"labels_of": hl_gauss_labels}),
    Case("classification_q_learning", lambda r: {**transition(r), "q_logits_tm1": normal(r, A, K),
             "q_logits_t": normal(r, A, K)}, ("q_logits_tm1",), ("r_t", "discount_t", "q_logits_t"),
         settings={"tx_pair": rlx.hl_gauss_pair(**BINS)}, oracle_settings={"labels_of": hl_gauss_labels,
             "mean_of": lambda p: beyond_rlax_oracles.hl_gauss_mean(p, -3.0, 3.0)}),
]  # fmt: skip

NEWER = [
    Case("rnd_intrinsic_rewards", lambda r, n=T: {"predictions_t": normal(r, n, M), "targets_t": normal(r, n, M)},
         ("predictions_t", "targets_t"), sequence=True),
    Case("rnd_loss", lambda r, n=T: {"predictions_t": normal(r, n, M), "targets_t": normal(r, n, M),
             "mask_t": mask(r, n)}, ("predictions_t",), ("targets_t",), sequence=True, masks=LATENT_MASK),
    Case("vdn_joint_value", lambda r, n=N: {"agent_values": normal(r, n), "agent_mask": mask(r, n)},
         ("agent_values",), masks={"agent_mask": ("agent_values",)}),
    Case("simple_policy_optimization_loss", lambda r, n=T: {"prob_ratios_t": positive(r, n), "adv_t": normal(r, n),
             "epsilon": np.asarray(0.3), "mask_t": mask(r, n)}, ("prob_ratios_t",), ("adv_t",), sequence=True,
         masks={"mask_t": ("prob_ratios_t", "adv_t")}),
    Case("sequential_monte_carlo_log_weights", lambda r: {"log_weights_tm1": normal(r, N), "r_t": normal(r, N),
             "discount_t": discount(r, N), "v_tm1": normal(r, N), "v_t": normal(r, N), "temperature": positive(r),
             "log_ratios_tm1": 0.4 * normal(r, N)},
         ("log_weights_tm1", "r_t", "discount_t", "v_tm1", "v_t", "temperature", "log_ratios_tm1")),
    Case("spr_loss", lambda r, n=T: {"predictions_t": normal(r, n, D), "targets_t": normal(r, n, D),
             "mask_t": mask(r, n)}, ("predictions_t",), ("targets_t",), sequence=True, masks=LATENT_MASK),
    Case("latent_consistency_loss", lambda r, n=T: {"predictions_t": normal(r, n, M), "targets_t": normal(r, n, M),
             "rho": np.asarray(0.7), "mask_t": mask(r, n)}, ("predictions_t",), ("targets_t",), sequence=True,
         masks=LATENT_MASK),
]  # fmt: skip


def mpo_case(name, make, learns, stopped=(), built=None, **more):
    """A case of MPO, in which arrays are inside of structures, and that takes any leading axes."""
    inside = {"temperature_constraint": ("temperature",), **(built or {})}
    names = tuple(make(np.random.default_rng(0)))
    call = getattr(mpo_oracles, f"call_{name}")
    return Case(name, make, learns, stopped, free=names, call=call, built=inside, **more)


def vmpo(rng):
    importance = {"restarting_weights": np.array([1.0, 1, 0, 1, 1, 1]), "importance_weights": positive(rng, T)}
    return {"advantages": normal(rng, T), **importance, "temperature": positive(rng)}


def kl_penalties(rng):
    one = {"kl": positive(rng, A), "alpha": positive(rng)}
    return {**one, "kl_each": positive(rng, A, D), "alpha_each": positive(rng, D)}


KL_PENALTIES = {"kl_constraints": ("kl", "alpha", "kl_each", "alpha_each")}
MPO = [
    mpo_case("mpo_loss", lambda r: {"sample_log_probs": log_probs(r, N, A), "sample_q_values": normal(r, N, A),
             "temperature": positive(r), **kl_penalties(r)}, ("sample_log_probs", "sample_q_values", "temperature",
             *KL_PENALTIES["kl_constraints"]), built=KL_PENALTIES, inner_constants=True),
    mpo_case("mpo_compute_weights_and_temperature_loss", lambda r: {"sample_q_values": normal(r, N, A),
             "temperature": positive(r)}, ("sample_q_values", "temperature")),
    mpo_case("compute_parametric_kl_penalty_and_dual_loss", kl_penalties, ("kl", "alpha", "kl_each", "alpha_each"),
             built=KL_PENALTIES, inner_constants=True),
    mpo_case("kl_constraint_loss", lambda r: {"kl": positive(r, A, D), "alpha": positive(r, D)}, ("kl", "alpha"),
             built={"penalty": ("alpha",)}, inner_constants=True),
    mpo_case("vmpo_loss", lambda r: {"sample_log_probs": log_probs(r, T), **vmpo(r), "kl": positive(r, T),
             "alpha": positive(r)}, ("sample_log_probs", "advantages", "temperature", "kl", "alpha"),
             ("importance_weights",), built={"kl_constraints": ("kl", "alpha")}, inner_constants=True),
    mpo_case("vmpo_compute_weights_and_temperature_loss", vmpo, ("advantages", "temperature"),
             ("importance_weights",), inner_constants=True),
    Case("get_top_k_weights", lambda r: {"restarting_weights": positive(r, T), "scaled_advantages": normal(r, T)},
         ("restarting_weights",), settings={"top_k_fraction": 0.5}, free=("restarting_weights", "scaled_advantages")),
]  # fmt: skip

NEW_RETURNS = [
    Case("pqn_q_lambda", lambda r, n=T: {"q": normal(r, n + 1, A), "a_tm1": action(r, n), "r_t": normal(r, n),
             "discount_t": unit(r, n), "lambda_": np.asarray(0.7)}, (), ("r_t", "discount_t", "lambda_"),
         sequence=True),
    Case("upgo_returns", lambda r, n=T: {"r_t": normal(r, n), "discount_t": unit(r, n), "v_t": normal(r, n)},
         ("r_t", "discount_t", "v_t"), sequence=True),
    Case("upgo_advantages", lambda r, n=T: {"v_tm1": normal(r, n), "v_t": normal(r, n), "r_t": normal(r, n),
             "discount_t": unit(r, n), "rho_tm1": 2 * unit(r, n)}, (),
         ("v_tm1", "v_t", "r_t", "discount_t", "rho_tm1"), sequence=True),
]  # fmt: skip

NEW_POLICIES = [
    Case("clipped_value_loss", lambda r, n=T: {"v_t": normal(r, n), "old_v_t": normal(r, n), "target_t": normal(r, n),
             "epsilon": np.asarray(0.3), "mask_t": mask(r, n)}, ("v_t",), ("old_v_t", "target_t"), sequence=True,
         masks={"mask_t": ("v_t", "old_v_t", "target_t")}),
    Case("kl_penalty_pg_loss", lambda r, n=T: {"prob_ratios_t": 2 * unit(r, n), "adv_t": normal(r, n),
             "kl_t": unit(r, n), "kl_weight": np.asarray(0.5), "mask_t": mask(r, n)}, ("prob_ratios_t", "kl_t"),
         ("adv_t", "kl_weight"), sequence=True, masks={"mask_t": ("prob_ratios_t", "adv_t", "kl_t")}),
    Case("advantage_weighted_loss", lambda r, n=T: {"log_probs_t": log_probs(r, n), "adv_t": normal(r, n),
             "temperature": np.asarray(0.5), "max_weight": np.asarray(3.0), "mask_t": mask(r, n)}, ("log_probs_t",),
         ("adv_t", "temperature"), sequence=True, masks={"mask_t": ("log_probs_t", "adv_t")}),
    Case("cmpo_policy", lambda r: {"prior_logits": normal(r, A), "adv": 2 * normal(r, A),
             "clip_value": np.asarray(0.8)}, ("prior_logits", "adv")),
    Case("cmpo_loss", lambda r: {"logits": normal(r, A), "prior_logits": normal(r, A), "adv": 2 * normal(r, A),
             "clip_value": np.asarray(0.8)}, ("logits",), ("prior_logits", "adv")),
    Case("sampled_cmpo_loss", lambda r, n=N: {"sample_log_probs": log_probs(r, n), "sample_adv": 0.7 * normal(r, n),
             "clip_value": np.asarray(0.8), "initial_normalizer": np.asarray(1.2)}, ("sample_log_probs",),
         ("sample_adv",)),
    Case("muesli_policy_loss", lambda r, n=T: {"logits_t": normal(r, n, A), "a_t": action(r, n),
             "adv_t": normal(r, n), "rho_t": 2 * unit(r, n), "prior_logits_t": normal(r, n, A),
             "q_adv_t": 2 * normal(r, n, A), "kl_weight": np.asarray(0.6), "mask_t": mask(r, n)}, ("logits_t",),
         ("adv_t", "prior_logits_t", "q_adv_t"), sequence=True,
         masks={"mask_t": ("logits_t", "adv_t", "rho_t", "prior_logits_t", "q_adv_t")}),
]  # fmt: skip

NEW_PREFERENCES = [
    *(Case(name, lambda r, n=T: {"log_probs_t": log_probs(r, n), "ref_log_probs_t": log_probs(r, n)},
           ("log_probs_t", "ref_log_probs_t"), free=("log_probs_t", "ref_log_probs_t"), sequence=True)
      for name in ("kl_k1", "kl_k2", "kl_k3")),
    Case("group_relative_advantages", lambda r, n=G: {"rewards": normal(r, n)}, ("rewards",)),
    Case("leave_one_out_advantages", lambda r, n=G: {"rewards": normal(r, n)}, ("rewards",), sequence=True),
    Case("sequence_policy_gradient_loss", lambda r, n=T: {"log_probs_t": log_probs(r, n), "adv_t": normal(r),
             "mask_t": mask(r, n)}, ("log_probs_t",), ("adv_t",), sequence=True, masks={"mask_t": ("log_probs_t",)}),
    *(Case(name, lambda r, n=T: grpo(r, n), ("log_probs_t",), ("old_log_probs_t", "adv_t", "ref_log_probs_t"),
           settings=settings, oracle_settings=settings, sequence=True, masks=GRPO_MASK)
      for name, settings in (("grpo_loss", {}), ("dr_grpo_loss", {"max_length": 9}))),
    Case("gspo_loss", lambda r, n=T: {**ratios(r, n), "adv": normal(r), "mask_t": mask(r, n),
             "epsilon_low": np.asarray(0.1), "epsilon_high": np.asarray(0.3)}, ("log_probs_t",),
         ("old_log_probs_t", "adv"), sequence=True, masks={"mask_t": ("log_probs_t", "old_log_probs_t")}),
    Case("dapo_loss", lambda r, n=T: group(r, n), ("log_probs_t",), ("old_log_probs_t", "adv"), sequence=True,
         masks={"mask_t": ("log_probs_t", "old_log_probs_t")}),
    Case("cispo_loss", lambda r, n=T: group(r, n), ("log_probs_t",), ("adv",), sequence=True,
         masks={"mask_t": ("log_probs_t", "old_log_probs_t")}),
    Case("rloo_loss", lambda r, n=T: {"log_probs_t": log_probs(r, G, n), "rewards": normal(r, G),
             "mask_t": mask(r, G, n)}, ("log_probs_t",), ("rewards",), sequence=True,
         masks={"mask_t": ("log_probs_t",)}),
    Case("dpo_loss", lambda r, n=T: {**pair(r, n), "beta": np.asarray(0.7), "label_smoothing": np.asarray(0.1)},
         PAIR_LEARNS, PAIR_STOPPED, sequence=True, masks=PAIR_MASKS),
    Case("ipo_loss", lambda r, n=T: {**pair(r, n), "tau": np.asarray(0.4)}, PAIR_LEARNS, PAIR_STOPPED, sequence=True,
         masks=PAIR_MASKS),
    Case("kto_loss", lambda r, n=T: {"log_probs_t": log_probs(r, n), "ref_log_probs_t": log_probs(r, n),
             "desirable": np.asarray(r.uniform() < 0.5), "reference_point": unit(r), "beta": np.asarray(0.7),
             "desirable_weight": np.asarray(1.3), "undesirable_weight": np.asarray(0.8), "mask_t": mask(r, n)},
         ("log_probs_t",), ("ref_log_probs_t", "reference_point"), sequence=True,
         masks={"mask_t": ("log_probs_t", "ref_log_probs_t")}),
    Case("kto_reference_point", lambda r, n=T: {"log_probs_t": log_probs(r, N, n) + 0.2,
             "ref_log_probs_t": log_probs(r, N, n) - 0.2, "mask_t": mask(r, N, n)}, (),
         ("log_probs_t", "ref_log_probs_t"), sequence=True, masks={"mask_t": ("log_probs_t", "ref_log_probs_t")}),
]  # fmt: skip

RECENT = [
    Case("repetition_penalty", lambda r: {"logits": normal(r, A), "seen": r.uniform(size=A) < 0.5}, ("logits",),
         settings={"penalty": 1.3}, free=("logits", "seen")),
    Case("info_nce_loss", lambda r, n=T: {"logits": normal(r, n, n), "logsumexp_weight": np.asarray(0.2),
             "mask": mask(r, n)}, ("logits",), sequence=True, masks={"mask": ("logits",)}),
    Case("percentile_range", lambda r, n=9: {"range_tm1": unit(r), "returns": 3 * normal(r, n), "mask": mask(r, n),
             "decay": np.asarray(0.4), "low": np.asarray(20.0), "high": np.asarray(90.0)}, free=("returns", "mask"),
         masks={"mask": ("returns",)}),
    Case("discovered_policy_loss", lambda r, n=T: {"prob_ratios_t": positive(r, n), "adv_t": 2 * normal(r, n),
             "alpha": np.asarray(0.7), "beta": np.asarray(0.4), "mask_t": mask(r, n)}, ("prob_ratios_t",), ("adv_t",),
         sequence=True, masks={"mask_t": ("prob_ratios_t", "adv_t")}),
    Case("learnt_policy_loss", lambda r, n=T: {"prob_ratios_t": positive(r, n), "adv_t": normal(r, n),
             "scores_t": normal(r, n), "threshold": np.asarray(0.1), "mask_t": mask(r, n)},
         ("prob_ratios_t", "scores_t"), ("adv_t",), sequence=True,
         masks={"mask_t": ("prob_ratios_t", "adv_t", "scores_t")}),
    Case("learnt_drift_inputs", lambda r, n=T: {"prob_ratios_t": positive(r, n), "adv_t": normal(r, n),
             "mask_t": mask(r, n)}, ("prob_ratios_t", "adv_t"), masks={"mask_t": ("prob_ratios_t", "adv_t")}),
    Case("dqn_reg_loss", lambda r: {**q_step(r), "q_t": normal(r, A), "value_weight": np.asarray(0.3)}, ("q_tm1",),
         (*TARGET, "q_t")),
    Case("d4pg_critic_loss",
         lambda r: {"q_atoms_tm1": atoms(r, K), "q_logits_tm1": normal(r, K), "r_t": normal(r, T),
                    "discount_t": unit(r, T) + 0.1, "q_atoms_t": atoms(r, L), "q_logits_t": normal(r, L)},
         ("q_logits_tm1",), (*TARGET, "q_logits_t")),
    Case("d4pg_actor_loss", lambda r: {"q_atoms_t": atoms(r, K), "q_logits_t": normal(r, K)}, ("q_logits_t",)),
    Case("truncated_quantiles", lambda r: {"dist_q": normal(r, M, K)}, ("dist_q",), settings={"num_dropped": 2}),
    Case("tqc_critic_loss", lambda r: {"dist_q_tm1": normal(r, M, K), "r_t": normal(r), "discount_t": discount(r),
             "dist_q_t": normal(r, G, L), "log_prob_t": normal(r), "temperature": unit(r),
             "huber_param": np.asarray(0.7)}, ("dist_q_tm1",),
         (*TARGET, "dist_q_t", "log_prob_t", "temperature"), settings={"num_dropped": 1}),
    Case("redq_critic_loss", lambda r: {"q_tm1": normal(r, N), "r_t": normal(r), "discount_t": discount(r),
             "q_t": normal(r, N), "log_prob_t": normal(r), "temperature": unit(r),
             "subset": np.asarray(r.choice(N, 2, replace=False), np.int32)}, ("q_tm1",),
         (*TARGET, "q_t", "log_prob_t", "temperature")),
    Case("redq_actor_loss", lambda r: {"q_t": normal(r, M), "log_prob_t": normal(r), "temperature": unit(r)},
         ("q_t", "log_prob_t"), ("temperature",)),
    Case("sac_discrete_critic_loss", lambda r: {"q_tm1": normal(r, N, A), **step(r), "q_t": normal(r, M, A),
             "logits_t": normal(r, A), "temperature": unit(r)}, ("q_tm1",),
         (*TARGET, "q_t", "logits_t", "temperature")),
    Case("sac_discrete_actor_loss", lambda r: {"q_t": normal(r, M, A), "logits_t": normal(r, A),
             "temperature": unit(r)}, ("logits_t",), ("q_t", "temperature")),
    Case("td3_bc_actor_loss", lambda r, n=T: {"q_t": normal(r, n), "a_t": normal(r, n, D), "data_a_t": normal(r, n, D),
             "value_weight": np.asarray(0.7), "mask": mask(r, n)}, ("q_t", "a_t"), sequence=True,
         masks={"mask": ("q_t", "a_t", "data_a_t")}, inner_constants=True),
    Case("fast_td3_critic_loss",
         lambda r: {"q_atoms_tm1": atoms(r, K), "q_logits_tm1": normal(r, N, K), "r_t": normal(r),
                    "discount_t": discount(r), "q_atoms_t": atoms(r, L), "q_logits_t": normal(r, M, L)},
         ("q_logits_tm1",), (*TARGET, "q_logits_t")),
    Case("normalized_advantages", lambda r, n=9: {"adv": 3 * normal(r, n), "epsilon": np.asarray(0.2),
             "mask": mask(r, n)}, free=("adv", "mask"), masks={"mask": ("adv",)}),
    Case("sapo_loss", lambda r, n=T: {**ratios(r, n), "adv_t": normal(r), "mask_t": mask(r, n),
             "temperature_positive": np.asarray(0.8), "temperature_negative": np.asarray(1.5)}, ("log_probs_t",),
         ("old_log_probs_t", "adv_t"), sequence=True, masks={"mask_t": ("log_probs_t", "old_log_probs_t")}),
    Case("simpo_loss", lambda r, n=T: {**answers(r, n), "beta": np.asarray(0.7), "margin": np.asarray(0.4)},
         PAIR_LEARNS, sequence=True, masks=ANSWER_MASKS),
    Case("orpo_loss", lambda r, n=T: {**answers(r, n), "odds_weight": np.asarray(0.7)}, PAIR_LEARNS, sequence=True,
         masks=ANSWER_MASKS),
    Case("dual_clipped_surrogate_pg_loss", lambda r, n=T: {"prob_ratios_t": positive(r, n), "adv_t": normal(r, n),
             "epsilon_low": np.asarray(0.3), "epsilon_high": np.asarray(0.2), "max_ratio": np.asarray(1.4),
             "mask_t": mask(r, n)}, ("prob_ratios_t",), ("adv_t",), sequence=True,
         masks={"mask_t": ("prob_ratios_t", "adv_t")}),
    Case("bradley_terry_loss", lambda r: {"chosen_reward": normal(r), "rejected_reward": normal(r),
             "margin": unit(r)}, ("chosen_reward", "rejected_reward")),
    Case("overlong_penalty", lambda r: {"length": 9 * unit(r, 4), "max_length": np.asarray(5.0),
             "buffer": np.asarray(3.0)}, free=("length",)),
    Case("generalized_jensen_shannon_divergence", lambda r: {"p_logits": normal(r, 2, A), "q_logits": normal(r, 2, A),
             "beta": np.asarray(0.3)}, ("p_logits", "q_logits"), free=("p_logits", "q_logits")),
    Case("truncated_importance_weights", lambda r, n=T: {"log_probs_t": log_probs(r, n),
             "behaviour_log_probs_t": log_probs(r, n), "max_weight": np.asarray(1.2), "mask_t": mask(r, n)},
         free=("log_probs_t", "behaviour_log_probs_t", "mask_t"),
         masks={"mask_t": ("log_probs_t", "behaviour_log_probs_t")}),
    Case("token_log_probs", lambda r, n=T: {"hidden": normal(r, n, D), "head": normal(r, A, D), "tokens": action(r, n),
             "temperature": np.asarray(0.7), "soft_cap": np.asarray(1.5)}, ("hidden", "head"), sequence=True,
         wide=True, settings={"chunk_size": 4, "with_entropy": True}, oracle_settings={}),
]  # fmt: skip

RATIO_MASK = {"mask_t": ("log_probs_t", "old_log_probs_t")}
LANGUAGE = [
    Case("importance_weights", lambda r, n=T: {"log_probs_t": log_probs(r, n), "behaviour_log_probs_t": log_probs(r, n),
             "mask_t": mask(r, n), "min_weight": np.asarray(0.4), "max_weight": np.asarray(1.2)},
         settings={"level": "geometric", "mode": "truncate"}, sequence=True,
         masks={"mask_t": ("log_probs_t", "behaviour_log_probs_t")}),
    Case("gmpo_loss", lambda r, n=T: {**ratios(r, n), "adv": normal(r), "mask_t": mask(r, n),
             "epsilon_low": np.asarray(0.1), "epsilon_high": np.asarray(0.2)}, ("log_probs_t",),
         ("old_log_probs_t", "adv"), sequence=True, masks=RATIO_MASK),
    Case("gspo_token_loss", lambda r, n=T: {**ratios(r, n), "adv_t": normal(r, n), "mask_t": mask(r, n),
             "epsilon_low": np.asarray(0.1), "epsilon_high": np.asarray(0.3)}, ("log_probs_t",),
         ("old_log_probs_t", "adv_t"), sequence=True, masks={"mask_t": ("log_probs_t", "old_log_probs_t", "adv_t")},
         inner_constants=True),
    Case("reinforce_plus_plus_advantages", lambda r: {"rewards": normal(r, N, G)}, ("rewards",)),
    Case("optimal_baseline_advantages", lambda r: {"rewards": normal(r, G), "lengths": positive(r, G)},
         ("rewards", "lengths")),
    Case("remax_advantages", lambda r: {"rewards": normal(r, G), "greedy_reward": normal(r)},
         ("rewards", "greedy_reward")),
    Case("clip_cov_loss", lambda r, n=T: {**group(r, n), "uniform_t": unit(r, G, n), "fraction": np.asarray(0.15),
             "min_covariance": np.asarray(0.05), "max_covariance": np.asarray(1.5)}, ("log_probs_t",),
         ("old_log_probs_t", "adv"), sequence=True, masks=RATIO_MASK),
    Case("kl_cov_loss", lambda r, n=T: {**group(r, n), "fraction": np.asarray(0.15), "kl_weight": np.asarray(0.5)},
         ("log_probs_t",), ("old_log_probs_t", "adv"), sequence=True, masks=RATIO_MASK),
    Case("pass_at_k_advantages", lambda r: {"correct": 1.0 * (r.permutation(5) < 2)}, settings={"k": 2}),
    Case("decoupled_advantages", lambda r: {"rewards": normal(r, G, D), "weights": positive(r, D)},
         ("rewards", "weights")),
    Case("slic_loss", lambda r, n=T: {**pair(r, n), "beta": np.asarray(0.2)}, PAIR_LEARNS, PAIR_STOPPED, sequence=True,
         masks=PAIR_MASKS),
    Case("robust_dpo_loss", lambda r, n=T: {**pair(r, n), "beta": np.asarray(0.7),
             "flip_probability": np.asarray(0.2)}, PAIR_LEARNS, PAIR_STOPPED, sequence=True, masks=PAIR_MASKS),
    Case("apo_loss", lambda r, n=T: {**pair(r, n), "beta": np.asarray(0.7)}, PAIR_LEARNS, PAIR_STOPPED, sequence=True,
         masks=PAIR_MASKS, settings={"chosen_is_better": False}),
    Case("kl_shaped_rewards", lambda r, n=T: {"reward": normal(r), "log_probs_t": log_probs(r, n),
             "ref_log_probs_t": log_probs(r, n), "kl_weight": np.asarray(0.3), "mask_t": mask(r, n)}, sequence=True,
         masks={"mask_t": ("log_probs_t", "ref_log_probs_t")}),
    Case("distillation_advantages", lambda r, n=T: {"log_probs_t": log_probs(r, n),
             "teacher_log_probs_t": log_probs(r, n), "mask_t": mask(r, n)}, sequence=True,
         masks={"mask_t": ("log_probs_t", "teacher_log_probs_t")}),
]  # fmt: skip

RLAX = [*ONE_STEP, *MULTI_STEP, *DISTRIBUTIONAL, *POLICIES, *ANY]
CASES = [*RLAX, *NEW_VALUES, *NEWER, *MPO, *NEW_RETURNS, *NEW_POLICIES, *NEW_PREFERENCES, *RECENT, *LANGUAGE]
