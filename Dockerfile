# The agent: one static binary on nothing. `make image` packs the same without a daemon.
FROM golang:1.26 AS build
ARG TARGETARCH
ARG VERSION=devel
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=linux GOARCH=$TARGETARCH go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$VERSION" -o /jettison ./cmd/jettison

FROM scratch
LABEL org.opencontainers.image.title="jettison"
COPY --from=build /jettison /jettison
ENTRYPOINT ["/jettison"]
CMD ["run"]
