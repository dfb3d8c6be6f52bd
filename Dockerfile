# One image for everything: the command line, the routing endpoint, and the nodes of a Ray cluster.
#   docker build -t olp-ray .
#   docker run --rm -p 8000:8000 olp-ray                      # the endpoint over an emulated fleet
#   docker run --rm -v "$PWD/o:/out" olp-ray compare --out /out
FROM python:3.11-slim

RUN useradd --create-home olp
WORKDIR /opt/olp-ray
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY olp_ray olp_ray
RUN pip install --no-cache-dir .

USER olp
WORKDIR /home/olp
EXPOSE 8000
ENTRYPOINT ["olp-ray"]
CMD ["serve", "--host", "0.0.0.0"]
