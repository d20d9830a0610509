"""The engine: parameters, optimizer, streams and CUDA graphs of an update, for any method.

Read interfaces first, then engine, optimizer, prefetcher and side_stream; then accelerator, host_transfer, round_means,
device, bf16, faults and nan_report.
"""
