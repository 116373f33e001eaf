# syntax=docker/dockerfile:1

# Debian's glibc on purpose: the NVIDIA container runtime injects a libnvidia-ml.so.1 that musl cannot load.
# A release is built from a digest, so that it can be built again:
#   docker build --build-arg PYTHON_IMAGE=python@sha256:… .
# `docker buildx imagetools inspect python:3.12-slim-bookworm` names the present one.
ARG PYTHON_IMAGE=python:3.12-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
WORKDIR /source
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY requirements/build.txt requirements/image.txt requirements/
RUN python -m venv /opt/gpu-triage \
    && /opt/gpu-triage/bin/python -m pip install --only-binary :all: --require-hashes -r requirements/image.txt \
    && python -m pip install --only-binary :all: --require-hashes -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
# The package's dashboards are links to these.
COPY dashboards dashboards
COPY exporter exporter
# Modules are compiled without the times of their files, which a build that can be repeated does not keep.
ARG SOURCE_DATE_EPOCH
RUN python -m pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/gpu-triage/bin/python -m pip install --no-deps --no-index /wheels/*.whl \
    && /opt/gpu-triage/bin/python -m pip uninstall --yes pip \
    && PYTHONHASHSEED=0 python -m compileall -q -f --invalidation-mode unchecked-hash /opt/gpu-triage/lib

FROM ${PYTHON_IMAGE}
ARG PYTHON_IMAGE
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="gpu-triage-exporter" \
      org.opencontainers.image.description="Prometheus exporter for NVIDIA GPU hosts that tells an on-call engineer why a GPU job is slow or failing" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.base.name="${PYTHON_IMAGE}"

# Nothing to install: libudev, which pyudev loads, comes with Debian's essential packages.
COPY --from=build /opt/gpu-triage /opt/gpu-triage

# The runtime mounts the driver's library for these; `utility` is NVML without CUDA.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=utility \
    PATH=/opt/gpu-triage/bin:$PATH \
    MALLOC_ARENA_MAX=1 \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1

# For --state.directory: a named volume that is mounted here takes over its owner.
RUN install --directory --owner=65534 --group=65534 --mode=0750 /var/lib/gpu-triage

# A number, so that Kubernetes can tell that it is not root. Nothing is written: any root file system may be read-only
# (a simulated host, --simulate, writes to /tmp).
USER 65534:65534
EXPOSE 9836
STOPSIGNAL SIGTERM

# Asks the process, not the GPUs: a host whose driver hangs must stay up to say so.
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9836/-/healthy', timeout=4)"]

ENTRYPOINT ["gpu-triage"]
CMD ["serve"]
