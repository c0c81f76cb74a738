# One static binary on nothing: the agent, with `--target bridge` what ties it to the Kubernetes API, or with `--target cluster` what a cluster
# has once. `make image` packs the same without a daemon.
FROM golang:1.26 AS build
ARG TARGETARCH
ARG VERSION=devel
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN go build -C deploy/release -buildvcs=false -o /release-documents .
RUN CGO_ENABLED=0 GOOS=linux GOARCH=$TARGETARCH go build -trimpath -buildvcs=false -tags grpcnotrace -ldflags "-s -w -X main.version=$VERSION" -o /jettison ./cmd/jettison && \
    /release-documents -version $VERSION -o /documents/jettison /jettison
RUN CGO_ENABLED=0 GOOS=linux GOARCH=$TARGETARCH go build -trimpath -buildvcs=false -tags grpcnotrace -ldflags "-s -w -X main.version=$VERSION" -o /jettison-bridge ./cmd/jettison-bridge && \
    /release-documents -version $VERSION -o /documents/jettison-bridge /jettison-bridge
RUN CGO_ENABLED=0 GOOS=linux GOARCH=$TARGETARCH go build -trimpath -buildvcs=false -tags grpcnotrace -ldflags "-s -w -X main.version=$VERSION" -o /jettison-cluster ./cmd/jettison-cluster && \
    /release-documents -version $VERSION -o /documents/jettison-cluster /jettison-cluster

FROM scratch AS cluster
LABEL org.opencontainers.image.title="jettison-cluster"
LABEL org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /jettison-cluster /jettison-cluster
COPY --from=build /documents/jettison-cluster /usr/share/doc/jettison-cluster
ENTRYPOINT ["/jettison-cluster"]
CMD ["nodes"]

FROM scratch AS bridge
LABEL org.opencontainers.image.title="jettison-bridge"
LABEL org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /jettison-bridge /jettison-bridge
COPY --from=build /documents/jettison-bridge /usr/share/doc/jettison-bridge
ENTRYPOINT ["/jettison-bridge"]
CMD ["run"]

FROM scratch
LABEL org.opencontainers.image.title="jettison"
LABEL org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /jettison /jettison
COPY --from=build /documents/jettison /usr/share/doc/jettison
ENTRYPOINT ["/jettison"]
CMD ["run"]
