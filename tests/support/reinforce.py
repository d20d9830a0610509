"""A plug-in with an on-policy method: REINFORCE with the value as its baseline (Williams 1992)."""

from ringside import MethodDeclaration, register_method
from shared.config.method_declaration import ActorCriticSettings

register_method(
    MethodDeclaration(
        "reinforce",
        "tests.support.reinforce_loss:Reinforce",
        ActorCriticSettings,
        metrics=("loss", "gradient_norm", "baseline"),
        head="policy_value",
        action_rule="categorical",
        has_target_network=False,
        on_policy=True,
    )
)
