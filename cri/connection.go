package cri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// Errors that callers distinguish. Calls wrap them with the endpoint and the runtime's message. A
// call that the runtime did not answer in time returns context.DeadlineExceeded.
var (
	// ErrNotCRI: the socket answers, but not with the requested CRI v1 service.
	ErrNotCRI = errors.New("no CRI v1 service on this socket")
	// ErrNotFound: the runtime has no such object.
	ErrNotFound = errors.New("not found")
	// ErrUnimplemented: the runtime lacks a call that is optional in CRI v1.
	ErrUnimplemented = errors.New("not implemented by this runtime")
	// ErrTooLarge: the answer exceeds the limits of this client. A retry does not help.
	ErrTooLarge = errors.New("answer too large")
)

const (
	// maxMessage is the receive limit: the lists of a node with thousands of dead containers exceed
	// gRPC's default of 4 MiB. containerd sends, and a kubelet receives, at most 16 MiB.
	maxMessage = 16 << 20
	// maxStatus is the receive limit of one verbose status. A typical status has 30 KiB.
	maxStatus = 2 << 20
	// window is the amount of an answer that a runtime may send before the client reads it: gRPC's
	// minimum.
	window = 64 << 10
)

// statusLimit returns the receive limit of one status. The plain status replaces a verbose status
// that is too large, and must succeed: without it the container's log is not rotated, and any image
// may be in use as one of its volumes. A tenant's pod with some 30,000 volume mounts (etcd limits
// an object to 1.5 MiB) has a plain status of 5 MiB. Almost nothing of it is decoded.
func statusLimit(verbose bool) int {
	if verbose {
		return maxStatus
	}
	return maxMessage
}

// link is a connection to one socket.
type link struct {
	endpoint    string
	conn        *grpc.ClientConn
	incremental *http.Transport // for answers that are decoded while they are received
	closing     context.Context // done once the link is closed
	closed      context.CancelFunc
	// epoch counts events after which another runtime may serve the socket: connections after the
	// first, and calls that failed with Unavailable. Hints about the runtime from an earlier epoch
	// are invalid.
	epoch   atomic.Uint64
	dialled atomic.Bool
	read    atomic.Int64 // bytes received
	timed   atomic.Pointer[func(method string, took time.Duration)]
	turn    *turn // serializes answers that may be large
	lists   *turn // serializes lists of all sandboxes, containers or images
}

// buffers assembles answers. gRPC's own pool uses 1 MiB for anything larger than 32 KiB, such as
// the list of a hundred pods, and keeps it until two garbage collections later.
var buffers = mem.NewTieredBufferPool(256, 4<<10, 16<<10, 32<<10, 64<<10, 128<<10, 256<<10, 512<<10,
	1<<20)

// newLink returns a link without connecting.
func newLink(endpoint string) (*link, error) {
	target, err := ParseEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	l := &link{endpoint: target}
	l.turn, l.lists = newTurn(&l.read), newTurn(&l.read)
	l.incremental = newIncrementalTransport(l)
	l.closing, l.closed = context.WithCancel(context.Background())
	l.conn, err = grpc.NewClient(target,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithUnaryInterceptor(func(
			ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			defer l.time(method)()
			return invoke(ctx, method, req, reply, cc, opts...)
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.ForceCodecV2(newPruningCodec())),
		// By default the window grows with the answer, up to 16 MiB of unread data.
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
		// This dialer replaces gRPC's to count connections: a runtime may restart between two calls, so
		// that no call fails.
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			if l.dialled.Swap(true) {
				l.epoch.Add(1)
			}
			conn, err := new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(target, "unix://"))
			if err != nil {
				return nil, err
			}
			return countingConn{conn, &l.read}, nil
		}),
		// A restarted runtime is available within seconds. grpc's default backoff of up to two minutes
		// is too slow.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6,
				Jitter: 0.2, MaxDelay: 3 * time.Second},
			MinConnectTimeout: 3 * time.Second,
		}),
		// The default is 32 KiB each. The agent sends little, and its memory is limited.
		grpc.WithWriteBufferSize(4<<10), grpc.WithReadBufferSize(16<<10),
		experimental.WithBufferPool(buffers),
	)
	if err != nil {
		return nil, fmt.Errorf("container runtime endpoint %q: %w", endpoint, err)
	}
	return l, nil
}

// time starts the measurement of a call. The returned function ends it.
func (l *link) time(method string) (end func()) {
	timed := l.timed.Load()
	if timed == nil {
		return func() {}
	}
	began := time.Now()
	return func() { (*timed)(path.Base(method), time.Since(began)) }
}

// close closes the connection and ends every call in flight.
func (l *link) close() error {
	l.closed()
	return l.conn.Close()
}

// ParseEndpoint returns an endpoint in its full form, unix:///PATH. It also accepts unix:/PATH and
// /PATH, like the kubelet (k8s.io/cri-client pkg/util/util_unix.go).
func ParseEndpoint(endpoint string) (string, error) {
	path := endpoint
	for _, scheme := range []string{"unix://", "unix:"} {
		if rest, ok := strings.CutPrefix(endpoint, scheme); ok {
			path = rest
			break
		}
	}
	if !strings.HasPrefix(path, "/") || strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("endpoint %q: want unix:///PATH/TO/SOCKET", endpoint)
	}
	return "unix://" + path, nil
}

// wrap returns an error with the operation, the runtime and the cause.
func (l *link) wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	if !ok {
		return fmt.Errorf("%s runtime %s: %w", verb, l.endpoint, err)
	}
	cause := errors.New(s.Message())
	switch s.Code() {
	case codes.NotFound:
		cause = fmt.Errorf("%w: %s", ErrNotFound, s.Message())
	case codes.Unimplemented:
		cause = fmt.Errorf("%w: %s", ErrNotCRI, s.Message())
	case codes.DeadlineExceeded:
		cause = withDetail(context.DeadlineExceeded, s.Message())
	case codes.Canceled:
		cause = withDetail(context.Canceled, s.Message())
	case codes.ResourceExhausted, codes.Internal:
		// errTooMany, or grpc-go rpc_util.go: "received message larger than max". A runtime may use
		// this code for other reasons.
		if strings.Contains(s.Message(), "larger than max") {
			cause = fmt.Errorf("%w: %s: remove dead containers and unused images, or use a runtime that "+
				"streams its lists (containerd 2.4, CRI-O 1.37)",
				ErrTooLarge, s.Message())
		}
	case codes.Unavailable:
		l.epoch.Add(1)
		// gRPC reports in this way that a peer sent something other than the HTTP/2 preface, so it does
		// not serve gRPC. If the peer sends nothing, gRPC times out or closes the connection: that may
		// be a runtime that hangs or is about to exit.
		if m := s.Message(); strings.Contains(m, "frame too large") ||
			strings.Contains(m, "error reading server preface") &&
				!strings.Contains(m, "use of closed network connection") && !strings.Contains(m, "timeout") {
			cause = fmt.Errorf("%w: %s", ErrNotCRI, m)
		}
	}
	return fmt.Errorf("%s runtime %s: %w", verb, l.endpoint, cause)
}

// withDetail appends text to a cause, without repeating the words of the cause.
func withDetail(cause error, text string) error {
	text = strings.TrimLeft(strings.TrimPrefix(text, cause.Error()), ": ")
	if text == "" {
		return cause
	}
	return fmt.Errorf("%w: %s", cause, text)
}

// wrapOptional does the same as wrap for a call that is optional in CRI v1: Unimplemented becomes
// ErrUnimplemented.
func (l *link) wrapOptional(verb string, err error) error {
	if s, _ := status.FromError(err); s.Code() == codes.Unimplemented {
		return fmt.Errorf("%s runtime %s: %w: %s", verb, l.endpoint, ErrUnimplemented, s.Message())
	}
	return l.wrap(verb, err)
}
