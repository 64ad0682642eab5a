# One image for the operator, the workers and the migrations. Builds with the plain builder and with BuildKit.
# The base needs Python >= 3.11 with pip and venv, and CA certificates; both stages use the same one.
ARG PYTHON_IMAGE=python:3.13-slim

FROM ${PYTHON_IMAGE} AS build
# So that what a builder keeps of this stage can be told, and pruned.
LABEL dev.tickkeeper.stage=build
WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore
RUN python3 -m venv --without-pip /opt/tickkeeper && python3 -m venv /opt/build

# The dependencies first: their layer changes only with the lock file. Wheels only, so that no compiler is needed.
COPY requirements/ requirements/
RUN python3 -m pip --python /opt/tickkeeper/bin/python install --no-compile --only-binary :all: \
      --require-hashes -r requirements/base.lock
# The build tool by the versions and hashes of the development lock; none of it reaches the image.
RUN awk '/^[a-z]/ {ours = /^(hatchling|packaging|pathspec|pluggy|tomlkit|trove-classifiers)==/} ours' requirements/dev.lock >build.lock \
 && /opt/build/bin/python -m pip install --only-binary :all: --require-hashes -r build.lock

COPY pyproject.toml README.md LICENSE ./
COPY operator/ operator/
RUN /opt/build/bin/python -m pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
 && python3 -m pip --python /opt/tickkeeper/bin/python install --no-compile --no-deps --no-index dist/*.whl

# Left out, as nothing here imports it: test suites and C sources inside the packages, a node_modules that the bullmq
# wheel carries, and the generated half of the Kubernetes client that does not use asyncio (33 MB).
# Bytecode is made here, since the container's file system is read-only: by hash, so that it does not depend on the
# hour of the build, and in one process, since bytecode also depends on what was compiled before it; -f: pip has left
# some. Of the generated Kubernetes modules only those that are used are compiled.
RUN cd /opt/tickkeeper/lib/python3*/site-packages \
 && rm -rf node_modules kubernetes/client/api/*_api.py \
 && find kubernetes/client/models -type f ! -name __init__.py -delete \
 && find . -type d -name tests -prune -exec rm -rf {} + \
 && find . -type f \( -name '*.pyx' -o -name '*.pxd' -o -name '*.c' -o -name '*.h' \) -delete \
 && export PYTHONHASHSEED=0 && compile='/opt/tickkeeper/bin/python -m compileall -q -f --invalidation-mode unchecked-hash' \
 && $compile -x 'kubernetes/(aio/)?client/(api|models)/.' . \
 && $compile kubernetes/aio/client/api/core_v1_api.py kubernetes/aio/client/api/custom_objects_api.py \
             kubernetes/aio/client/api/coordination_v1_api.py \
 && mkdir -p /image/opt /image/app && mv /opt/tickkeeper /image/opt/ && find /image -exec touch -h -d @0 {} +

FROM ${PYTHON_IMAGE}
ARG VERSION=0.0.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="tickkeeper" \
      org.opencontainers.image.description="Keeps BullMQ tick schedules alive, and drains a Postgres outbox on each tick" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# From one folder, so that no folder on the way has the hour of the build.
COPY --from=build /image/ /
# The numeric user has no entry in the list of users, and what asks for its name or home must not fail.
ENV PATH=/opt/tickkeeper/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/nonexistent LOGNAME=tickkeeper
# Handlers lie here: a worker looks for modules in its working directory first.
WORKDIR /app
# Numeric, so that Kubernetes can see that it is not root.
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["tickkeeper"]
