# docker build --build-arg VERSION="$(git describe --tags --always --dirty)" -t settee .

FROM golang:1.26.8 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=unknown
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-X main.version=$VERSION" -o /out/settee ./cmd/settee
# Made here because the image below has nothing to make them with.
RUN mkdir -p /out/store && mkdir -m 1777 /out/tmp

# The binary needs no C library, so the image has no system at all: the certificate authorities, an empty
# /tmp, and the store's directory, whose owner a new volume takes over.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/settee /usr/local/bin/settee
COPY --from=build --chown=65532:65532 /out/tmp /tmp
COPY --from=build --chown=65532:65532 /out/store /var/lib/settee
USER 65532:65532
VOLUME /var/lib/settee
ENTRYPOINT ["/usr/local/bin/settee"]
CMD ["serve", "--store", "pebble:///var/lib/settee"]
