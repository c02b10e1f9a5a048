# layermem in a container (docs/installation.md).
#
#   docker build -t layermem .
#   docker run --rm -u "$(id -u)" -v "$PWD":/work layermem train --solver solver.prototxt --budget 50%
#
# For NVIDIA GPUs, remove the marks before the lines with `cuda` at the end of this file, and run it with `--gpus all`.

FROM python:3.12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN pip wheel --no-deps --wheel-dir /wheels /src

FROM python:3.12-slim AS cpu
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir /wheels/*.whl && rm -r /wheels
ENV LAYERMEM_CACHE=/tmp/layermem
WORKDIR /work
ENTRYPOINT ["layermem"]
CMD ["--help"]

# The driver comes from the host, headers and NVRTC from NVIDIA's Python wheels; g++ compiles PyCUDA. Kernels are
# compiled at the first run, into LAYERMEM_CACHE: mount a folder there to keep them.
# FROM cpu AS cuda
# RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
# RUN layermem setup-cuda --kernels none
# ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
