"""The performance model: steps/s of a run from the service times of its parts, as in docs/model.md.

Read service_times first, then queueing and throughput_model. `allocation` holds the rules by which a run takes cores,
which the model and shared/config/resolve.py both use. `known_times` keeps what `launch.py bench model` measured.
"""
