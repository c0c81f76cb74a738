package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// limits are the limits of a whole list; the receive limit applies to each message only. A
// container with the kubelet's labels and annotations takes about 1 KiB encoded, and 1 KiB decoded.
// Both limits suffice for a node that was never cleaned.
type limits struct {
	items int // a message without items counts as one
	bytes int // encoded size of all messages of a stream
}

var listLimits = limits{items: 100_000, bytes: 64 << 20}

// exceeded returns an error for a list above the limits.
func (l limits) exceeded(items, bytes int) error {
	if items <= l.items && bytes <= l.bytes {
		return nil
	}
	return fmt.Errorf("%w: more than %d items or %d bytes: remove dead containers and unused "+
		"images, or restart the runtime",
		ErrTooLarge, l.items, l.bytes)
}

// listHints caches facts about a list.
type listHints struct {
	// epoch of the link in which the runtime lacked the stream, plus one; 0: never
	noStream atomic.Uint64
	small    atomic.Bool // the last unfiltered answer was small (see largeAnswer)
}

// listCall is a list that a runtime answers as a stream (cri-api 0.37, containerd 2.4) or in one
// message. Each item is decoded as soon as it is received, and nothing else is kept: ten thousand
// dead containers, decoded as a whole, exceed the agent's memory.
type listCall[T any] struct {
	link   *link
	hints  *listHints
	all    bool // no filter
	limits limits
	// The calls, and the types of their messages.
	streamName, plainName string
	streamed, plain       proto.Message
	request, plainRequest proto.Message // of each call
	// item decodes one item. It returns false to omit the item.
	item func(text []byte) (T, bool, error)
}

// list requests the list. A timeout of link.patient is DeadlineExceeded, like any other.
func (t *listCall[T]) list(ctx context.Context) ([]T, error) {
	out, err := t.fetch(ctx)
	if status.Code(err) == codes.Canceled && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		err = status.FromContextError(context.DeadlineExceeded).Err()
	}
	return out, err
}

// fetch calls the stream, and falls back to one message if the runtime answers Unimplemented.
func (t *listCall[T]) fetch(ctx context.Context) ([]T, error) {
	defer t.link.turn.wait(ctx, patienceForList)()
	epoch := t.link.epoch.Load()
	if t.hints.noStream.Load() != epoch+1 {
		out, begun, err := t.drain(ctx)
		if begun || status.Code(err) != codes.Unimplemented {
			return out, err
		}
		t.hints.noStream.Store(epoch + 1)
	}
	a := answer[T]{schema: schemaOf(t.plain), item: t.item}
	answered, err := false, error(nil)
	if t.all && !t.hints.small.Load() {
		answered, err = a.readIncremental(ctx, t.link, t.plainName, t.plainRequest)
	}
	if !answered {
		err = t.link.conn.Invoke(ctx, t.plainName, t.plainRequest, &a)
	}
	if err == nil {
		if t.all {
			t.hints.small.Store(a.bytes < largeAnswer)
		}
		err = t.limits.exceeded(a.seen, 0)
	}
	if err != nil {
		return nil, err
	}
	return a.items, nil
}

// drain reads a stream to its end. A stream that breaks off is an error and never returns a partial
// list. When drain returns, the stream has ended: the runtime must not wait for a reader
// (cri-kernel facts: containerd blocks if its reader is gone).
func (t *listCall[T]) drain(ctx context.Context) (out []T, begun bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer t.link.time(t.streamName)()
	stream, err := t.link.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, t.streamName)
	if err == nil {
		err = stream.SendMsg(t.request)
	}
	if err == nil || errors.Is(err, io.EOF) { // RecvMsg returns the cause
		err = stream.CloseSend()
	}
	if err != nil {
		return nil, false, err
	}
	items, bytes := 0, 0
	a := answer[T]{schema: schemaOf(t.streamed), item: t.item}
	for {
		a.seen, a.bytes = 0, 0
		err := stream.RecvMsg(&a)
		if errors.Is(err, io.EOF) {
			return a.items, true, nil
		}
		if err != nil {
			if !begun {
				return nil, false, err
			}
			return nil, true, fmt.Errorf("stream broke off after %d items: %w", items, err)
		}
		begun = true
		items += max(1, a.seen)
		bytes += a.bytes
		if err := t.limits.exceeded(items, bytes); err != nil {
			return nil, true, err
		}
	}
}

// answer collects the decoded items of one message, or of several successive messages, of a list.
type answer[T any] struct {
	schema *schema
	item   func(text []byte) (T, bool, error)
	items  []T
	seen   int // items of the message, including omitted ones
	bytes  int // encoded size of the message
}

// decode decodes the items of a message.
func (a *answer[T]) decode(data mem.BufferSlice) error {
	a.bytes = data.Len()
	p := pruner{chunks: data, frees: true}
	err := p.eachItem(a.bytes, a.schema, a.take)
	a.seen = p.items
	return err
}

func (a *answer[T]) take(text []byte) error {
	item, keep, err := a.item(text)
	if keep && err == nil {
		a.items = append(a.items, item)
	}
	return err
}
