# Ringside in a container, for CPUs or NVIDIA GPUs. Shared memory is anonymous: only --learner-ranks needs
# --shm-size 1g, for NCCL. No privileges are needed.
#
#   docker build --tag ringside --build-arg DEVICE=gpu .
#   docker run --rm --gpus all ringside                            # the doctor
#   docker run --rm --gpus all --volume runs:/home/ringside/app/runs ringside --actors 12 --game breakout
#
# On machines without a GPU: DEVICE=cpu, and no --gpus. torch's package for Linux brings CUDA along, which is large; to
# take its builds for CPUs, name their index, which pytorch.org shows, in PIP_EXTRA_INDEX_URL.

ARG DEVICE=cpu

FROM docker.io/library/python:3.11-slim AS cpu
RUN apt-get update \
    && apt-get install --yes --no-install-recommends make \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 ringside

# The driver and nvidia-smi come from the host, by the NVIDIA Container Toolkit; CUDA's libraries come with torch.
FROM cpu AS gpu
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

FROM ${DEVICE}
ARG PIP_EXTRA_INDEX_URL
ENV PIP_NO_CACHE_DIR=1
USER ringside
WORKDIR /home/ringside/app
COPY --chown=ringside:ringside . .
RUN make install PYTHON=python3 && mkdir runs \
    && .venv/bin/python -c "from actors.pixels.bilinear import compile_kernels; compile_kernels()"
VOLUME /home/ringside/app/runs
ENTRYPOINT [".venv/bin/python", "launch.py"]
CMD ["doctor"]
