"""Networks: Q-values, their gradients, and actions. Read model first."""
