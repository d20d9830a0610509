"""The data of a round: transitions drawn from the ring, gathered, handed to the trainer. Read feed first."""
