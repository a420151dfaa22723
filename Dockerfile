# The course in a container. It needs no network once it is built, and listens on this
# machine only:
#
#   docker build -t device-lab .
#   docker run --rm -it --init -p 127.0.0.1:8888:8888 -v device-lab:/course/work device-lab
#
# Then open the address that begins with http://127.0.0.1:8888. Copies of the lessons
# and the score are kept in the volume. With an NVIDIA GPU: docker build --build-arg
# BUILD=cu130 …, docker run --gpus all …
FROM python:3.12-slim
ARG BUILD=cpu

# For cells that compile.
RUN apt-get update && apt-get install -y --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*

RUN useradd --create-home learner && install -d -o learner /course
USER learner
WORKDIR /course

# All that an installation depends on, so that a change of a lesson does not repeat it.
COPY --chown=learner README.md pyproject.toml requirements*.txt ./
COPY --chown=learner tools tools
COPY --chown=learner utils utils
COPY --chown=learner simulate simulate
COPY --chown=learner course course
COPY --chown=learner packages packages
RUN PIP_NO_CACHE_DIR=1 python tools/setup_env.py --build "$BUILD"

COPY --chown=learner CITATION.cff LICENSE* ./
COPY --chown=learner docs docs
COPY --chown=learner notebooks notebooks
RUN mkdir work && ln -s work/.progress.json .progress.json

EXPOSE 8888
CMD [".venv/bin/python", "tools/lab.py", "--no-browser", "--ip=0.0.0.0"]
