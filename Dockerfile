# syntax=docker/dockerfile:1
# jaxrl in a container: `docker build --build-arg VARIANT=cuda12 -t jaxrl .`, then
# `docker run --gpus=all -v "$PWD:/workspace" jaxrl train ppo --workdir=runs/mine`, or without a command the pipeline of
# configs/pipeline_config.yaml. docs/containers.md explains it.
ARG PYTHON=3.12

FROM python:${PYTHON}-slim-bookworm AS build
# What runs on: cpu, cuda12, cuda13 or tpu. EXTRAS are further ones of docs/installation.md.
ARG VARIANT=cpu
ARG EXTRAS=compare,dashboard,gcs,mlflow,onnx,search,video
WORKDIR /src
RUN python -m venv /opt/jaxrl
ENV PATH=/opt/jaxrl/bin:$PATH PIP_CACHE_DIR=/pip-cache
# Dependencies first: this layer is made anew only when they change. Only the names of the packages are needed.
COPY pyproject.toml requirements.lock requirements-3.11.lock README.md LICENSE ./
RUN mkdir jaxrl launch && printf '__version__ = "0"\n' >jaxrl/__init__.py
# pip's cache is a mount and no part of the image; hadolint knows that of its default folder alone.
# hadolint ignore=DL3042
RUN --mount=type=cache,target=/pip-cache \
    case "$VARIANT" in cpu) extras=$EXTRAS ;; *) extras=$VARIANT,$EXTRAS ;; esac \
    && case "$(python --version)" in *\ 3.11.*) lock=requirements-3.11.lock ;; *) lock=requirements.lock ;; esac \
    && pip install --constraint "$lock" ".[$extras]" \
    && pip uninstall --yes jaxrl-recurrent && rm -rf jaxrl launch build
COPY envs envs
COPY configs configs
COPY launch launch
COPY docs docs
COPY jaxrl jaxrl
# hadolint ignore=DL3042
RUN --mount=type=cache,target=/pip-cache pip install --no-deps .

FROM python:${PYTHON}-slim-bookworm
RUN useradd --create-home --uid 1000 jaxrl \
    && mkdir -p /workspace/runs /workspace/pipelines /workspace/results && chown -R jaxrl:jaxrl /workspace
COPY --from=build /opt/jaxrl /opt/jaxrl
COPY --chown=jaxrl:jaxrl configs /workspace/configs
ENV PATH=/opt/jaxrl/bin:$PATH PYTHONUNBUFFERED=1
USER 1000:1000
WORKDIR /workspace
VOLUME ["/workspace/runs", "/workspace/pipelines", "/workspace/results"]
# TensorBoard and the dashboard, where they are started.
EXPOSE 6006 8050
ENTRYPOINT ["jaxrl"]
CMD ["pipeline", "--config=configs/pipeline_config.yaml"]
