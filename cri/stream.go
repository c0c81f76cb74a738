package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// limits bound a list, of which the receive limit bounds each message only. A container takes about 1 KiB with the kubelet's
// labels and annotations, and its decoded form as much again: both leave room for a node that was never cleaned.
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
	return fmt.Errorf("%w: more than %d items or %d bytes: remove dead containers and unused images, or restart the runtime",
		ErrTooLarge, l.items, l.bytes)
}

// absence remembers that a runtime lacks a stream: the link's epoch in which it said so, plus one; 0: it never did.
type absence struct{ learnt atomic.Uint64 }

// twin is a list that a runtime answers as a stream of messages M (cri-api 0.37, containerd 2.4) or in one message.
type twin[M, T any] struct {
	link   *link
	turn   turn
	absent *absence
	limits limits
	stream func(context.Context) (grpc.ServerStreamingClient[M], error)
	items  func(*M) []T
	plain  func(context.Context) ([]T, error)
}

// list asks for the stream, and for the one message where the runtime answers Unimplemented.
func (t twin[M, T]) list(ctx context.Context) ([]T, error) {
	defer t.turn.wait(ctx)()
	epoch := t.link.epoch.Load()
	if t.absent.learnt.Load() != epoch+1 {
		out, begun, err := t.drain(ctx)
		if begun || status.Code(err) != codes.Unimplemented {
			return out, err
		}
		t.absent.learnt.Store(epoch + 1)
	}
	out, err := t.plain(ctx)
	if err == nil {
		err = t.limits.exceeded(len(out), 0)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// drain reads a stream to its end. One that breaks in the middle is an error and never half a list. However drain ends, the
// stream has ended too: the runtime must not wait for a reader (cri-kernel facts: containerd blocks on one that is gone).
func (t twin[M, T]) drain(ctx context.Context) (out []T, begun bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := t.stream(ctx)
	if err != nil {
		return nil, false, err
	}
	items, bytes := 0, 0
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out, true, nil
		}
		if err != nil {
			if !begun {
				return nil, false, err
			}
			return nil, true, fmt.Errorf("the stream broke after %d items: %w", len(out), err)
		}
		begun = true
		batch := t.items(m)
		items += max(1, len(batch))
		bytes += proto.Size(any(m).(proto.Message))
		if err := t.limits.exceeded(items, bytes); err != nil {
			return nil, true, err
		}
		out = append(out, batch...)
	}
}
