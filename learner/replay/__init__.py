"""The data of a round: transitions drawn from the ring, gathered, handed to the engine. Read replay_source first."""
