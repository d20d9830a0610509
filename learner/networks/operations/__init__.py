"""Operations with hand-written backward passes, for `learner.networks.autograd`."""
