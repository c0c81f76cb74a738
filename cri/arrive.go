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

// largeAnswer is one that is read while it comes. gRPC puts a message together before anybody reads
// it: that of ten thousand dead containers has 12 MiB, beside what is made of it. A list of
// everything is taken for as large until it was not; then it is asked for as ever.
const largeAnswer = 1 << 20

// prefix is what stands before a gRPC message: whether it is compressed, and its length.
const prefix = 5

// newArriving speaks HTTP/2 with a socket, a connection for each call, and holds no more of an
// answer than window.
func newArriving(l *link) *http.Transport {
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
			return arriving{conn, &l.read}, nil
		},
	}
	t.Protocols.SetUnencryptedHTTP2(true)
	return t
}

// arrives asks for a list, and takes each item as soon as it is there. told is false where what has
// come is no such answer, and the call has to be made as ever, which also has words for what is
// wrong. A refusal is an answer: asked for once more it would take its time again, and none would
// be left for what is done about it.
func (a *answer[T]) arrives(ctx context.Context, l *link, name string,
	request proto.Message) (told bool, err error) {
	defer l.time(name)()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.closing, cancel)()
	res, n, err := l.ask(ctx, name, request)
	if err != nil {
		_, told = status.FromError(err)
		return told, err
	}
	defer res.Body.Close()
	if n > maxMessage { // in gRPC's words
		return true, status.Errorf(codes.ResourceExhausted,
			"received message larger than max (%d vs. %d)", n, maxMessage)
	}
	p := pruner{from: io.LimitReader(res.Body, int64(n)), room: make([]byte, 16<<10)}
	err = p.each(n, a.of, a.take)
	a.bytes, a.seen = n, p.items
	switch {
	case err == nil:
		err = endOf(res)
	case p.broken != nil:
		err = status.Error(codes.Unavailable, fmt.Sprintf("the answer broke after %d items: %v", p.items,
			p.broken))
	default: // as gRPC says what a codec does
		err = status.Error(codes.Internal, err.Error())
	}
	if over := ctx.Err(); err != nil && over != nil {
		err = status.FromContextError(over).Err()
	}
	return true, err
}

// ask makes a call whose answer is one message, of n bytes, that comes next. Where it has a status
// instead, that is the error.
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
	if res, err = l.arriving.RoundTrip(q); err != nil {
		return nil, 0, err
	}
	var head [prefix]byte
	_, err = io.ReadFull(res.Body, head[:])
	length := binary.BigEndian.Uint32(head[1:])
	switch {
	case errors.Is(err, io.EOF):
		err = refusalOf(res)
	case err == nil && (res.StatusCode != http.StatusOK || head[0] != 0 || length > math.MaxInt32):
		err = errors.New("not such an answer")
	}
	if err != nil {
		res.Body.Close()
		return nil, 0, err
	}
	return res, int(length), nil
}

// endOf takes what comes after a message: that the call went well.
func endOf(res *http.Response) error {
	var more [1]byte
	if n, err := io.ReadFull(res.Body, more[:]); n > 0 || !errors.Is(err, io.EOF) {
		return status.Error(codes.Unavailable, fmt.Sprintf("the answer does not end: %d bytes, %v", n,
			err))
	}
	code, text, err := statusOf(res.Trailer)
	if err != nil {
		return status.Error(codes.Unavailable, "the answer ends without a status")
	}
	return status.Error(code, text)
}

// refusalOf is what an answer without a message says.
func refusalOf(res *http.Response) error {
	code, text, err := statusOf(res.Trailer)
	if err != nil { // nothing but a header came
		code, text, err = statusOf(res.Header)
	}
	switch {
	case err != nil:
		return err
	case code == codes.OK:
		return status.Error(codes.Internal, "the answer ends without a message")
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
