# The service, without tests and tools. It runs as nobody in particular and writes nothing but /tmp.
FROM python:3.13.9-slim-trixie

ENV PYTHONUNBUFFERED=1
WORKDIR /srv/cupo

# The packages first: they change less often than the code.
COPY requirements.txt ./
RUN python -m pip install --no-cache-dir --disable-pip-version-check --root-user-action=ignore \
    --only-binary=:all: --require-hashes -r requirements.txt

COPY alembic/ alembic/
COPY app/ app/
RUN python -m compileall -q alembic app

USER 65532:65532
EXPOSE 8000
CMD ["python", "-m", "app", "serve", "--host", "0.0.0.0"]
