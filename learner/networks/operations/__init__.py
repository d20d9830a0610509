"""Operations with backward passes of their own, for `learner.networks.autograd`."""
