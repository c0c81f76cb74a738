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

// Errors that callers branch on. They come wrapped, with the endpoint and the runtime's own words.
// A call that the runtime did not answer in time is context.DeadlineExceeded.
var (
	// ErrNotCRI: something answers on the socket, but not with the CRI v1 service that was asked for.
	ErrNotCRI = errors.New("no CRI v1 runtime service there")
	// ErrNotFound: the runtime knows no such sandbox or container.
	ErrNotFound = errors.New("not found")
	// ErrUnimplemented: the runtime lacks a call that a CRI v1 runtime may lack.
	ErrUnimplemented = errors.New("not implemented by this runtime")
	// ErrTooLarge: an answer is larger than this client takes; asking again will not help.
	ErrTooLarge = errors.New("answer too large")
)

const (
	// maxMessage is the receive limit: a node with thousands of dead containers answers lists of more
	// than gRPC's 4 MiB. containerd sends no more than this, nor does a kubelet take more.
	maxMessage = 16 << 20
	// maxStatus is that of one verbose status. An ordinary one has 30 KiB.
	maxStatus = 2 << 20
	// window is what a runtime may send of one answer before it is read: grpc's least.
	window = 64 << 10
)

// statusLimit is the receive limit of one status. The plain one is what is asked for where the
// verbose one is too large, and it has to tell: of a container that does not, no log is rotated,
// and any image may be its volume. A tenant's pod of some 30,000 volume mounts (etcd takes 1.5 MiB
// of an object) makes 5 MiB of it, of which next to nothing is taken.
func statusLimit(verbose bool) int {
	if verbose {
		return maxStatus
	}
	return maxMessage
}

// link is a connection to one socket.
type link struct {
	endpoint string
	conn     *grpc.ClientConn
	arriving *http.Transport // for answers that are read while they come
	closing  context.Context // over once it is closed
	closed   context.CancelFunc
	// epoch counts what may have put another runtime behind the socket: connections after the first,
	// and calls that failed with Unavailable. What was learnt of the runtime in an earlier epoch
	// counts no more.
	epoch   atomic.Uint64
	dialled atomic.Bool
	read    atomic.Int64 // bytes
	timed   atomic.Pointer[func(method string, took time.Duration)]
	turn    *turn // of answers that may be large
	lists   *turn // of everything
}

// buffers are what answers are put together in. gRPC's own pool takes 1 MiB for all that is larger
// than 32 KiB, such as the list of a hundred pods, and it lies there until two garbage collections
// later.
var buffers = mem.NewTieredBufferPool(256, 4<<10, 16<<10, 32<<10, 64<<10, 128<<10, 256<<10, 512<<10,
	1<<20)

// newLink does not connect yet.
func newLink(endpoint string) (*link, error) {
	target, err := ParseEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	l := &link{endpoint: target}
	l.turn, l.lists = newTurn(&l.read), newTurn(&l.read)
	l.arriving = newArriving(l)
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
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.ForceCodecV2(newThin())),
		// By default it grows with what comes, up to 16 MiB of an answer that nobody reads.
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
		// gRPC's own dialer would do but for the count: a runtime can restart between two calls, and none
		// of them fails.
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			if l.dialled.Swap(true) {
				l.epoch.Add(1)
			}
			conn, err := new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(target, "unix://"))
			if err != nil {
				return nil, err
			}
			return arriving{conn, &l.read}, nil
		}),
		// A runtime that restarts is back within seconds: grpc's default backoff of up to two minutes
		// would miss it.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6,
				Jitter: 0.2, MaxDelay: 3 * time.Second},
			MinConnectTimeout: 3 * time.Second,
		}),
		// 32 KiB each by default; what the agent sends is small, and its memory is a budget.
		grpc.WithWriteBufferSize(4<<10), grpc.WithReadBufferSize(16<<10),
		experimental.WithBufferPool(buffers),
	)
	if err != nil {
		return nil, fmt.Errorf("container runtime endpoint %q: %w", endpoint, err)
	}
	return l, nil
}

// time begins to measure a call; the returned function ends that.
func (l *link) time(method string) (end func()) {
	timed := l.timed.Load()
	if timed == nil {
		return func() {}
	}
	began := time.Now()
	return func() { (*timed)(path.Base(method), time.Since(began)) }
}

// close ends every call in flight.
func (l *link) close() error {
	l.closed()
	return l.conn.Close()
}

// ParseEndpoint returns an endpoint in its full form, unix:///PATH. Also taken are unix:/PATH and
// /PATH alone, as the kubelet takes them (k8s.io/cri-client pkg/util/util_unix.go).
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

// wrap makes an error that says what was asked, of which runtime, and what was the matter.
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
		cause = followed(context.DeadlineExceeded, s.Message())
	case codes.Canceled:
		cause = followed(context.Canceled, s.Message())
	case codes.ResourceExhausted, codes.Internal:
		// errTooMany, or grpc-go rpc_util.go: "received message larger than max". A runtime may answer
		// with this code for reasons of its own.
		if strings.Contains(s.Message(), "larger than max") {
			cause = fmt.Errorf("%w: %s: remove dead containers and unused images, or use a runtime that "+
				"streams its lists (containerd 2.4)",
				ErrTooLarge, s.Message())
		}
	case codes.Unavailable:
		l.epoch.Add(1)
		// grpc reports a peer that does not speak HTTP/2 so: the preface came back as something else. A
		// peer that sends none may be a runtime that hangs, or is about to end: grpc gives up on it and
		// closes the connection.
		if m := s.Message(); strings.Contains(m, "frame too large") ||
			strings.Contains(m, "error reading server preface") &&
				!strings.Contains(m, "use of closed network connection") && !strings.Contains(m, "timeout") {
			cause = fmt.Errorf("%w: %s", ErrNotCRI, m)
		}
	}
	return fmt.Errorf("%s runtime %s: %w", verb, l.endpoint, cause)
}

// followed is a cause with what is said beyond it, which often begins with the same words.
func followed(cause error, text string) error {
	text = strings.TrimLeft(strings.TrimPrefix(text, cause.Error()), ": ")
	if text == "" {
		return cause
	}
	return fmt.Errorf("%w: %s", cause, text)
}

// wrapOptional is wrap for a call that a CRI v1 runtime may lack.
func (l *link) wrapOptional(verb string, err error) error {
	if s, _ := status.FromError(err); s.Code() == codes.Unimplemented {
		return fmt.Errorf("%s runtime %s: %w: %s", verb, l.endpoint, ErrUnimplemented, s.Message())
	}
	return l.wrap(verb, err)
}
