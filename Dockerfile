# One static binary on nothing: the agent, or with `--target bridge` what ties it to the Kubernetes API. `make image` packs the same without a
# daemon.
FROM golang:1.26 AS build
ARG TARGETARCH
ARG VERSION=devel
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=linux GOARCH=$TARGETARCH go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$VERSION" -o /jettison ./cmd/jettison
RUN CGO_ENABLED=0 GOOS=linux GOARCH=$TARGETARCH go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$VERSION" -o /jettison-bridge ./cmd/jettison-bridge

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
