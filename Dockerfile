# One static binary on nothing: the agent, with `--target bridge` what ties it to the Kubernetes API, or with `--target cluster` what a cluster
# has once. `make image` packs the same without a daemon.
FROM golang:1.26 AS build
ARG TARGETARCH
ARG VERSION=devel
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=linux GOARCH=$TARGETARCH go build -trimpath -buildvcs=false -tags grpcnotrace -ldflags "-s -w -X main.version=$VERSION" -o /jettison ./cmd/jettison
RUN CGO_ENABLED=0 GOOS=linux GOARCH=$TARGETARCH go build -trimpath -buildvcs=false -tags grpcnotrace -ldflags "-s -w -X main.version=$VERSION" -o /jettison-bridge ./cmd/jettison-bridge
RUN CGO_ENABLED=0 GOOS=linux GOARCH=$TARGETARCH go build -trimpath -buildvcs=false -tags grpcnotrace -ldflags "-s -w -X main.version=$VERSION" -o /jettison-cluster ./cmd/jettison-cluster

FROM scratch AS cluster
LABEL org.opencontainers.image.title="jettison-cluster"
COPY --from=build /jettison-cluster /jettison-cluster
ENTRYPOINT ["/jettison-cluster"]
CMD ["nodes"]

FROM scratch AS bridge
LABEL org.opencontainers.image.title="jettison-bridge"
COPY --from=build /jettison-bridge /jettison-bridge
ENTRYPOINT ["/jettison-bridge"]
CMD ["run"]

FROM scratch
LABEL org.opencontainers.image.title="jettison"
COPY --from=build /jettison /jettison
ENTRYPOINT ["/jettison"]
CMD ["run"]
