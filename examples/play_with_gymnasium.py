"""A trained agent as an ordinary function on an ordinary Gymnasium env.

python examples/play_with_gymnasium.py zoo/pong
python examples/play_with_gymnasium.py runs/pong-20260101-120000 --window
"""

from __future__ import annotations

import argparse

import ringside


def main() -> None:
    """Play one episode; print its return."""
    parser = argparse.ArgumentParser(description="Play one episode on a Gymnasium env.")
    parser.add_argument("load", help="a run directory, a checkpoint, a file of weights or a name in the zoo")
    parser.add_argument("--steps", type=int, default=27_000, help="the most steps to play")
    parser.add_argument("--window", action="store_true", help="show it in Gymnasium's own window")
    options = parser.parse_args()

    agent = ringside.load_agent(options.load)
    env = agent.env(render_mode="human" if options.window else None)
    observation, _ = env.reset(seed=1)
    total, over, steps = 0.0, False, 0
    while not over and steps < options.steps:
        observation, reward, terminated, truncated, _ = env.step(agent(observation))
        total, over, steps = total + float(reward), terminated or truncated, steps + 1
    env.close()
    print(f"{agent.game}: {total:g} after {steps:,} steps")


if __name__ == "__main__":
    main()
