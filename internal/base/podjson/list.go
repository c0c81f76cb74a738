// Package podjson decodes pod objects from outside the agent: strictly, in bounded memory and time,
// one pod at a time. It keeps the fields that decisions and records need.
//
//	list.go       List: the pods of a list, one by one
//	pod.go        Pod, Protobuf, Manifest: one pod
//	protobuf.go   the memory of a pod that a kubelet sends
//	admission.go  DecodeForAdmission: the pod of an admission request
//	yaml.go       YAML: converts YAML to JSON
//	guard.go      rejects text that takes too much time or memory, before it is decoded
//	types.go      values of wrong types; Line: the line of an error
//	bounds.go     limits of the fields that decisions iterate over
//	quantity.go   ParseQuantity, ReadQuantity
//	trim.go       Trim: the kept fields; Size: their memory
//	fit.go        Fit: all pods of a node, in bounded memory
package podjson

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// MaxPod bounds the JSON of one pod in bytes. etcd accepts no object above 1.5 MiB.
const MaxPod = 1 << 20

// MaxHeld bounds the bytes of text that List holds at a time: one pod, and read-ahead beyond it.
const MaxHeld = MaxPod + 64<<10

// ErrTooLarge is wrapped by errors about pods that exceed a limit.
var ErrTooLarge = errors.New("too large")

// List reads a JSON list of pods, a v1.PodList, or a v1.List as printed by kubectl, and calls take
// with the text of each item. It holds one item at a time, and read-ahead beyond it. It calls held,
// if not nil, with the bytes of text whenever they exceed the maximum so far; in memory they take
// up to three times as much, for the decoder's buffer and the item. Other text is an error that
// names the item ("pods[3]"); errors of r, held and take are wrapped.
func List(r io.Reader, held func(bytes int) error, take func(i int, raw []byte) error) error {
	b := &bounded{r: r, held: held}
	dec := json.NewDecoder(b)
	l := listing{dec: dec, bounded: b, take: take}
	start, err := l.token()
	if err != nil {
		return err
	}
	switch start {
	case json.Delim('['):
		err = l.items()
	case json.Delim('{'):
		err = l.object()
	default:
		err = errNoList
	}
	if err != nil {
		return err
	}
	b.allow(dec.InputOffset())
	switch _, err = dec.Token(); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return errors.New("more text after the list of pods")
}

var errNoList = errors.New(`want a JSON list of pods, or {"items": [...]}`)

type listing struct {
	dec     *json.Decoder
	bounded *bounded
	take    func(i int, raw []byte) error
}

// token returns the next token. No token of the list itself is longer than a pod.
func (l *listing) token() (json.Token, error) {
	l.bounded.allow(l.dec.InputOffset())
	t, err := l.dec.Token()
	return t, syntax(err)
}

// object reads a PodList after its opening brace.
func (l *listing) object() error {
	seen, haveItems := map[string]bool{}, false
	for l.dec.More() {
		key, err := l.token()
		if err != nil {
			return err
		}
		name, _ := key.(string) // the decoder rejects other keys
		if seen[name] {
			return fmt.Errorf("duplicate field %q", clip(name))
		}
		seen[name] = true
		if name == "items" {
			haveItems = true
			err = l.itemsOrNull()
		} else {
			err = l.field(name)
		}
		if err != nil {
			return err
		}
	}
	if !haveItems {
		return errNoList
	}
	_, err := l.token() // the closing brace, or a syntax error
	return err
}

// field reads a field of a list other than items.
func (l *listing) field(name string) error {
	l.bounded.allow(l.dec.InputOffset())
	want := ""
	switch name {
	case "metadata": // not needed
		var skipped json.RawMessage
		return syntax(l.dec.Decode(&skipped))
	case "apiVersion":
		want = "v1"
	case "kind":
		want = "PodList"
	default:
		return fmt.Errorf("unknown field %q", clip(name))
	}
	var got any
	if err := l.dec.Decode(&got); err != nil {
		return syntax(err)
	}
	if got != want && (name != "kind" || got != "List") {
		return fmt.Errorf("%s: got %s, want %q", name, clip(fmt.Sprintf("%q", got)), want)
	}
	return nil
}

func (l *listing) itemsOrNull() error {
	switch t, err := l.token(); {
	case err != nil:
		return err
	case t == json.Delim('['):
		return l.items()
	case t != nil:
		return errors.New("items: want a list")
	}
	return nil // null: an empty list of a Go client
}

// items reads the items and the end of a list.
func (l *listing) items() error {
	for i := 0; l.dec.More(); i++ {
		l.bounded.allow(l.dec.InputOffset())
		var raw json.RawMessage
		if err := l.dec.Decode(&raw); err != nil {
			return fmt.Errorf("pods[%d]: %w", i, syntax(err))
		}
		if len(raw) > MaxPod {
			return fmt.Errorf("pods[%d]: %w", i, errPodTooLarge)
		}
		if err := l.take(i, raw); err != nil {
			return fmt.Errorf("pods[%d]: %w", i, err)
		}
		l.bounded.allow(l.dec.InputOffset()) // for the text between two items
	}
	_, err := l.token()
	return err
}

var errPodTooLarge = fmt.Errorf("%w: more than %d bytes of JSON for one pod", ErrTooLarge, MaxPod)

// syntax replaces an error about an early end by a plain text.
func syntax(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("incomplete text")
	}
	return err
}

// bounded limits how far the decoder, which reads until a value ends, reads ahead: to one pod.
type bounded struct {
	r    io.Reader
	held func(bytes int) error // may be nil
	// bytes from the start; text before from is no longer in memory
	read, upTo, from int64
	maxHeld          int64 // most bytes held so far
}

// allow permits to read one pod from an offset on, with some space around it.
func (b *bounded) allow(offset int64) { b.from, b.upTo = offset, offset+MaxHeld }

func (b *bounded) Read(p []byte) (int, error) {
	left := b.upTo - b.read
	if left <= 0 {
		return 0, errPodTooLarge
	}
	n, err := b.r.Read(p[:min(int64(len(p)), left)])
	b.read += int64(n)
	if now := b.read - b.from; now > b.maxHeld {
		b.maxHeld = now
		if b.held != nil {
			err = cmp.Or(b.held(int(now)), err)
		}
	}
	return n, err
}

// clip shortens foreign text for a message.
func clip(s string) string {
	const limit = 100
	if len(s) > limit {
		return s[:limit] + "..."
	}
	return s
}
