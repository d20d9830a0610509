"""The machinery of an update: parameters, optimizer, streams, devices. Read interfaces, then engine."""
