"""Model card of an agent for the Hugging Face Hub: the README of its zoo entry, with the metadata of the Hub."""

from __future__ import annotations

import json
from typing import Any

from ringside.zoo.catalogue import name_of_entry

LIBRARY = "ringside"


def pulled_name(repo: str) -> str:
    """Name that an agent USER/NAME has in the zoo once it is pulled, unless another is asked for."""
    return name_of_entry(repo.rpartition("/")[2])


def model_card(name: str, repo: str, readme: str, evaluation: dict[str, Any], *, atari: bool) -> str:
    """Text of README.md in a repository.

    Args:
        name: of the agent.
        repo: USER/NAME on the Hub.
        readme: text of the zoo entry.
        evaluation: as `launch.py eval --json` writes it.
        atari: True if the agent plays an Atari game, False for an env.
    """
    game = str(evaluation["game"])
    score = f"{evaluation['mean']:.2f} +/- {evaluation['sd']:.2f}"
    tags = ["reinforcement-learning", "deep-reinforcement-learning", *(["atari"] if atari else []), game, LIBRARY]
    pulled = pulled_name(repo)
    head = [
        "---",
        f"library_name: {LIBRARY}",
        "tags:",
        *(f"- {json.dumps(tag)}" for tag in tags),
        "model-index:",
        f"- name: {json.dumps(name)}",
        "  results:",
        "  - task:",
        "      type: reinforcement-learning",
        "      name: reinforcement-learning",
        "    dataset:",
        f"      name: {json.dumps(game)}",
        f"      type: {json.dumps(game)}",
        "    metrics:",
        "    - type: mean_reward",
        f"      value: {json.dumps(score)}",
        f"      name: {json.dumps(_rules(evaluation))}",
        "      verified: false",
        "---",
    ]
    use = f"""
## Use it

    python launch.py zoo pull {repo}
    python launch.py play --load {pulled}

```python
import ringside

agent = ringside.load_agent("{pulled}")
```
"""
    return "\n".join(head) + "\n\n" + readme.strip() + "\n" + use


def _rules(evaluation: dict[str, Any]) -> str:
    """Conditions of the score in a few words."""
    return f"mean_reward, {evaluation['episodes']} episodes, protocol {evaluation['protocol']}"
