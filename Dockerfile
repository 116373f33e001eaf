# syntax=docker/dockerfile:1

# Debian's glibc on purpose: the NVIDIA container runtime injects a libnvidia-ml.so.1 that musl cannot load.
ARG PYTHON_VERSION=3.12

FROM python:${PYTHON_VERSION}-slim-bookworm AS build
WORKDIR /source
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY requirements/build.txt requirements/runtime.txt requirements/
RUN python -m venv /opt/gpu-triage \
    && /opt/gpu-triage/bin/python -m pip install --require-hashes -r requirements/runtime.txt \
    && python -m pip install --require-hashes -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY exporter exporter
RUN python -m pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/gpu-triage/bin/python -m pip install --no-deps --no-index /wheels/*.whl \
    && /opt/gpu-triage/bin/python -m pip uninstall --yes pip

FROM python:${PYTHON_VERSION}-slim-bookworm
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="gpu-triage-exporter" \
      org.opencontainers.image.description="Prometheus exporter for NVIDIA GPU hosts that tells an on-call engineer why a GPU job is slow or sick" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

# Nothing to install: libudev, which pyudev loads, comes with Debian's essential packages.
COPY --from=build /opt/gpu-triage /opt/gpu-triage

# The runtime mounts the driver's library for these; `utility` is NVML without CUDA.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=utility \
    PATH=/opt/gpu-triage/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1

USER 65534:65534
EXPOSE 9836

# Asks the process, not the GPUs: a host whose driver hangs must stay up to say so.
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9836/-/healthy', timeout=4)"]

ENTRYPOINT ["gpu-triage"]
CMD ["serve"]
