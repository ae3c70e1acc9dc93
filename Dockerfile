# wenet_uio in a container: recipes, tools and server.
#
#   docker build -t wenet_uio .                                           # with CUDA libraries, for GPUs and CPUs
#   docker build -t wenet_uio:cpu --build-arg TORCH_INDEX=URL .           # URL: PyTorch's package index for CPUs, smaller
#   docker build -t wenet_uio --build-arg PACKAGES=g++ .                  # with a compiler: faster fbank on CPUs
#   docker build -t wenet_uio:s3 --build-arg EXTRAS="requirements/s3.txt requirements/ray.txt" .
#
#   docker run --gpus all --shm-size 16g -v "$PWD:/work" -it wenet_uio bash examples/espeak/s0/run.sh
#   docker run -p 10086:10086 -v "$PWD/exp/run:/model:ro" -v "$PWD/tokens:/tokens:ro" wenet_uio \
#       wenet-uio serve --host 0.0.0.0 --model /model --token_file /tokens

# The digest is that of the image for all platforms. Renew it for newer packages of the system:
# docker buildx imagetools inspect python:3.11-slim-bookworm
FROM python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b

ARG TORCH_INDEX=
ARG PACKAGES=
ARG EXTRAS="requirements/onnx.txt requirements/serve.txt"
ENV WENET_UIO_VENV=/opt/venv PIP_NO_CACHE_DIR=1

WORKDIR /opt/wenet_uio
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]

# The packages first: a change of the code does not install them again.
COPY path.sh requirements.txt ./
COPY requirements requirements
COPY tools/setup_env.sh tools/check_requirements.py tools/
RUN export PIP_EXTRA_INDEX_URL="$TORCH_INDEX" PIP_CONSTRAINT=requirements/tested.txt && . ./path.sh && need_packages $EXTRAS

# Optional packages of the system, in the versions of the base image's distribution
# hadolint ignore=DL3008
RUN [[ -z "$PACKAGES" ]] || { apt-get update && apt-get install -y --no-install-recommends $PACKAGES && rm -rf /var/lib/apt/lists/*; }

# A user of its own, who may write data/ and exp/ of the recipes.
RUN useradd --create-home --uid 1000 user
COPY --chown=1000:1000 . .
RUN /opt/venv/bin/pip install --no-deps --editable .
USER 1000
ENV PATH=/opt/venv/bin:/opt/wenet_uio/bin:$PATH VIRTUAL_ENV=/opt/venv
CMD ["wenet-uio", "--help"]
