# One image for every service; compose.yaml says which command each runs.
# Another base has to have python3 in version 3.11 with venv, and useradd; one that is not Debian needs PDF="".
ARG BASE=docker.io/library/python:3.11-slim-bookworm

FROM ${BASE} AS build
# More words for pip, as `--no-index --find-links /wheels` where the base has wheels and PyPI is out of reach.
ARG PIP=""
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
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
RUN python3 -m venv /opt/build \
    && /opt/build/bin/pip wheel --no-cache-dir --disable-pip-version-check ${PIP} --no-deps -w /dist .

FROM ${BASE}
RUN useradd --system --uid 8428 --home-dir /var/lib/gpuvigil --create-home gpuvigil
# What draws a report as PDF, and a font; none where it is empty, and nothing is fetched where the base has them.
ARG PDF="libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0 fonts-dejavu-core"
RUN test -z "${PDF}" || dpkg -s ${PDF} >/dev/null 2>&1 || { apt-get update \
    && apt-get install -y --no-install-recommends ${PDF} \
    && rm -rf /var/lib/apt/lists/*; }
ARG PIP=""
WORKDIR /source
# What others make is a layer of its own: nearly all of the image, and the same in the next version until a pin changes.
COPY pyproject.toml constraints.txt ./
RUN touch README.md LICENSE \
    && python3 -m venv /opt/gpuvigil \
    && /opt/gpuvigil/bin/pip install --no-cache-dir --disable-pip-version-check ${PIP} -c constraints.txt '.[all,influxdb,pdf]'
COPY --from=build /dist dist
RUN /opt/gpuvigil/bin/pip install --no-cache-dir --disable-pip-version-check --no-index --no-deps --force-reinstall dist/*.whl
USER gpuvigil
ENV PATH=/opt/gpuvigil/bin:$PATH PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
WORKDIR /var/lib/gpuvigil
CMD ["gpuvigil", "--help"]
