package cri

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// largeAnswer is the size from which a list is decoded while it is received. gRPC assembles a whole
// message before it decodes it: the list of ten thousand dead containers has 12 MiB, in addition to
// the decoded items. A complete list is assumed to be large until the last one was small; then gRPC
// is used.
const largeAnswer = 1 << 20

// prefix is the size of the header of a gRPC message: compression flag and length.
const prefix = 5

// newIncrementalTransport returns an HTTP/2 client of a socket with one connection per call, which
// buffers at most window bytes of an answer.
func newIncrementalTransport(l *link) *http.Transport {
	t := &http.Transport{
		Protocols: new(http.Protocols), DisableKeepAlives: true, DisableCompression: true,
		WriteBufferSize: 4 << 10, ReadBufferSize: 4 << 10,
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerConnection: window,
			MaxReceiveBufferPerStream: window},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(l.endpoint, "unix://"))
			if err != nil {
				return nil, err
			}
			return countingConn{conn, &l.read}, nil
		},
	}
	t.Protocols.SetUnencryptedHTTP2(true)
	return t
}

// readIncremental requests a list and decodes each item as soon as it is received. answered is
// false if the server sent no gRPC answer: the caller must then repeat the call with gRPC, which
// also explains the error. A rejection counts as an answer: repeating the call would use up the
// time for the fallback.
func (a *answer[T]) readIncremental(ctx context.Context, l *link, name string,
	request proto.Message) (answered bool, err error) {
	defer l.time(name)()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.closing, cancel)()
	res, n, err := l.ask(ctx, name, request)
	if err != nil {
		_, answered = status.FromError(err)
		return answered, err
	}
	defer res.Body.Close()
	if n > maxMessage { // gRPC's text
		return true, status.Errorf(codes.ResourceExhausted,
			"received message larger than max (%d vs. %d)", n, maxMessage)
	}
	p := pruner{from: io.LimitReader(res.Body, int64(n)), room: make([]byte, 16<<10)}
	err = p.eachItem(n, a.schema, a.take)
	a.bytes, a.seen = n, p.items
	switch {
	case err == nil:
		err = endOf(res)
	case p.broken != nil:
		err = status.Error(codes.Unavailable, fmt.Sprintf("answer broke off after %d items: %v", p.items,
			p.broken))
	default: // like gRPC for errors of a codec
		err = status.Error(codes.Internal, err.Error())
	}
	if over := ctx.Err(); err != nil && over != nil {
		err = status.FromContextError(over).Err()
	}
	return true, err
}

// ask starts a call and returns before it reads the answer, one message of n bytes. If the answer
// is a status without a message, ask returns it as an error.
func (l *link) ask(ctx context.Context, name string, request proto.Message) (res *http.Response,
	n int, err error) {
	text := make([]byte, prefix)
	if text, err = (proto.MarshalOptions{}).MarshalAppend(text, request); err != nil {
		return nil, 0, err
	}
	binary.BigEndian.PutUint32(text[1:], uint32(len(text)-prefix))
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost"+name,
		bytes.NewReader(text))
	if err != nil {
		return nil, 0, err
	}
	q.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"},
		"User-Agent": {"grpc-jettison"}}
	if res, err = l.incremental.RoundTrip(q); err != nil {
		return nil, 0, err
	}
	var head [prefix]byte
	_, err = io.ReadFull(res.Body, head[:])
	length := binary.BigEndian.Uint32(head[1:])
	switch {
	case errors.Is(err, io.EOF):
		err = refusalOf(res)
	case err == nil && (res.StatusCode != http.StatusOK || head[0] != 0 || length > math.MaxInt32):
		err = errors.New("not an answer with one message")
	}
	if err != nil {
		res.Body.Close()
		return nil, 0, err
	}
	return res, int(length), nil
}

// endOf reads the end of the answer after the message, and returns the call's status.
func endOf(res *http.Response) error {
	var more [1]byte
	if n, err := io.ReadFull(res.Body, more[:]); n > 0 || !errors.Is(err, io.EOF) {
		return status.Error(codes.Unavailable, fmt.Sprintf("answer continues after its message: %d bytes, %v",
			n, err))
	}
	code, text, err := statusOf(res.Trailer)
	if err != nil {
		return status.Error(codes.Unavailable, "answer has no status")
	}
	return status.Error(code, text)
}

// refusalOf returns the status of an answer without a message.
func refusalOf(res *http.Response) error {
	code, text, err := statusOf(res.Trailer)
	if err != nil { // the answer has only headers
		code, text, err = statusOf(res.Header)
	}
	switch {
	case err != nil:
		return err
	case code == codes.OK:
		return status.Error(codes.Internal, "answer has no message")
	}
	return status.Error(code, text)
}

func statusOf(h http.Header) (code codes.Code, text string, err error) {
	n, err := strconv.ParseUint(h.Get("Grpc-Status"), 10, 32)
	text = h.Get("Grpc-Message")
	if plain, err := url.PathUnescape(text); err == nil {
		text = plain
	}
	return codes.Code(n), text, err
}
