# One image for every service; compose.yaml says which command each runs.
FROM python:3.11-slim-bookworm AS build
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY gpuvigil gpuvigil
COPY accounting accounting
COPY collector collector
COPY integrations integrations
COPY hub hub
COPY analyzer analyzer
COPY alerts alerts
COPY dashboard dashboard
COPY report report
COPY cli cli
COPY simulator simulator
COPY evaluation evaluation
RUN python -m venv /opt/gpuvigil \
    && /opt/gpuvigil/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt '.[all,influxdb]'

FROM python:3.11-slim-bookworm
COPY --from=build /opt/gpuvigil /opt/gpuvigil
RUN useradd --system --uid 8428 --home-dir /var/lib/gpuvigil --create-home gpuvigil
USER gpuvigil
ENV PATH=/opt/gpuvigil/bin:$PATH PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
WORKDIR /var/lib/gpuvigil
CMD ["gpuvigil", "--help"]
