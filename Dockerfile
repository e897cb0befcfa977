# Two images of one source, by --target:
#
#   docker build --build-arg VERSION="$(scripts/version)" -t settee .
#   docker build --build-arg VERSION="$(scripts/version)" --target fdb -t settee-fdb .
#
# Without a VERSION it is the next release.

FROM golang:1.26.8-bookworm AS source
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=

# With the FoundationDB engine: FoundationDB's own client package has the library and its headers.
FROM source AS build-fdb
ARG FDB_VERSION=7.3.79
ADD https://github.com/apple/foundationdb/releases/download/${FDB_VERSION}/foundationdb-clients_${FDB_VERSION}-1_amd64.deb /tmp/clients.deb
RUN dpkg -i /tmp/clients.deb && make build-fdb ${VERSION:+VERSION="$VERSION"}

FROM debian:bookworm-slim AS fdb
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/*
COPY --from=build-fdb /usr/lib/libfdb_c.so /usr/lib/
COPY --from=build-fdb /src/bin/settee /usr/local/bin/settee
COPY LICENSE NOTICE /usr/share/doc/settee/
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/settee"]
CMD ["serve", "--store", "fdb:///etc/foundationdb/fdb.cluster?prefix=settee"]

# With the embedded engines alone, which need no C library.
FROM source AS build
RUN make build ${VERSION:+VERSION="$VERSION"}
# Made here because the image below has nothing to make them with.
RUN mkdir -p /out/store && mkdir -m 1777 /out/tmp

# No system at all: the certificate authorities, an empty /tmp, and the store's directory, whose owner a new
# volume takes over.
FROM scratch AS settee
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /src/bin/settee /usr/local/bin/settee
COPY LICENSE NOTICE /usr/share/doc/settee/
COPY --from=build --chown=65532:65532 /out/tmp /tmp
COPY --from=build --chown=65532:65532 /out/store /var/lib/settee
USER 65532:65532
VOLUME /var/lib/settee
ENTRYPOINT ["/usr/local/bin/settee"]
CMD ["serve", "--store", "pebble:///var/lib/settee"]
