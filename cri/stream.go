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

// limits bound a list, of which the receive limit bounds each message only. A container takes about
// 1 KiB with the kubelet's labels and annotations, and its decoded form as much again: both leave
// room for a node that was never cleaned.
type limits struct {
	items int // a message without any counts as one
	bytes int // of a stream's messages, encoded
}

var listLimits = limits{items: 100_000, bytes: 64 << 20}

// exceeded is the error of a list that is longer.
func (l limits) exceeded(items, bytes int) error {
	if items <= l.items && bytes <= l.bytes {
		return nil
	}
	return fmt.Errorf("%w: more than %d items or %d bytes: remove dead containers and unused "+
		"images, or restart the runtime",
		ErrTooLarge, l.items, l.bytes)
}

// learnt is what is remembered of a list.
type learnt struct {
	// the link's epoch in which the runtime said that it lacks the stream, plus one; 0: it never did
	noStream atomic.Uint64
	small    atomic.Bool // the last answer to one of everything was (see largeAnswer)
}

// twin is a list that a runtime answers as a stream (cri-api 0.37, containerd 2.4) or in one
// message. Either way each item is made of what came as soon as it is known, and nothing else is
// kept: ten thousand dead containers, decoded as a whole, are more memory than the agent has.
type twin[T any] struct {
	link   *link
	learnt *learnt
	all    bool // of everything, without a filter
	limits limits
	// The calls, and the messages that they are answered with.
	streamName, plainName string
	streamed, plain       proto.Message
	request, whole        proto.Message // of each call
	// item makes one; false: it is left out.
	item func(text []byte) (T, bool, error)
}

// list asks for the stream, and for the one message where the runtime answers Unimplemented.
func (t *twin[T]) list(ctx context.Context) ([]T, error) {
	defer t.link.turn.wait(ctx, patienceForList)()
	epoch := t.link.epoch.Load()
	if t.learnt.noStream.Load() != epoch+1 {
		out, begun, err := t.drain(ctx)
		if begun || status.Code(err) != codes.Unimplemented {
			return out, err
		}
		t.learnt.noStream.Store(epoch + 1)
	}
	a := answer[T]{of: takenOf(t.plain), item: t.item}
	told, err := false, error(nil)
	if t.all && !t.learnt.small.Load() {
		told, err = a.arrives(ctx, t.link, t.plainName, t.whole)
	}
	if !told {
		err = t.link.conn.Invoke(ctx, t.plainName, t.whole, &a)
	}
	if err == nil {
		if t.all {
			t.learnt.small.Store(a.bytes < largeAnswer)
		}
		err = t.limits.exceeded(a.seen, 0)
	}
	if err != nil {
		return nil, err
	}
	return a.items, nil
}

// drain reads a stream to its end. One that breaks in the middle is an error and never half a list.
// However drain ends, the stream has ended too: the runtime must not wait for a reader (cri-kernel
// facts: containerd blocks on one that is gone).
func (t *twin[T]) drain(ctx context.Context) (out []T, begun bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer t.link.time(t.streamName)()
	stream, err := t.link.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, t.streamName)
	if err == nil {
		err = stream.SendMsg(t.request)
	}
	if err == nil || errors.Is(err, io.EOF) { // the stream's end tells why
		err = stream.CloseSend()
	}
	if err != nil {
		return nil, false, err
	}
	items, bytes := 0, 0
	a := answer[T]{of: takenOf(t.streamed), item: t.item}
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
			return nil, true, fmt.Errorf("the stream broke after %d items: %w", items, err)
		}
		begun = true
		items += max(1, a.seen)
		bytes += a.bytes
		if err := t.limits.exceeded(items, bytes); err != nil {
			return nil, true, err
		}
	}
}

// answer is what the codec makes of a list's message, or of several that come one after the other.
type answer[T any] struct {
	of    *part
	item  func(text []byte) (T, bool, error)
	items []T
	seen  int // items of the message, taken or not
	bytes int // of it
}

// decode takes the items of a message.
func (a *answer[T]) decode(data mem.BufferSlice) error {
	a.bytes = data.Len()
	p := pruner{chunks: data, frees: true}
	err := p.each(a.bytes, a.of, a.take)
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
