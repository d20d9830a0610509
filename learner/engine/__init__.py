"""The machinery of an update: parameters, optimizer, streams, devices. Read trainer first."""
