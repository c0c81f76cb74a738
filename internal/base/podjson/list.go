// Package podjson decodes pod objects that come from outside: strictly, in bounded memory and time,
// one pod after another. Of each it keeps what decisions and records need.
//
//	list.go      List: the pods of a list, one by one
//	pod.go       Pod, Manifest: one pod
//	protobuf.go  how much memory one takes as a kubelet sends it
//	asking.go    Asking: one that asks to be taken
//	yaml.go      YAML: JSON of it
//	guard.go     what would take too much time or memory, refused before it is decoded
//	types.go     misplaced: values of other types than a pod has; Line: where in a text
//	bounds.go    how much of a client's pod the gate looks at
//	quantity.go  ParseQuantity, ReadQuantity
//	trim.go      Trim: what is kept; Size: how much memory it takes
//	fit.go       Fit: all of a node's pods, in bounded memory
package podjson

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// MaxPod is the most bytes that one pod may have as JSON. etcd takes no object above 1.5 MiB.
const MaxPod = 1 << 20

// MaxHeld is the most bytes of text that List holds at a time: one pod, with what was read beyond
// it.
const MaxHeld = MaxPod + 64<<10

// ErrTooLarge is wrapped by errors that say that a pod is larger than the agent takes.
var ErrTooLarge = errors.New("too large")

// List reads a JSON list of pods, a v1.PodList or a v1.List as kubectl prints it, and hands each
// item to take as it stands in the text. No more than one item is held at a time, with what was
// read beyond it: held is told whenever that is more than it was, in bytes of text; in memory it is
// up to three times as much, the decoder's buffer and the item. nil: it is not told. Whatever is
// none of these three ends it with an error that names the item ("pods[3]"); errors of r, held and
// take are wrapped.
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

// token is the next one; no token of the list's own is longer than a pod.
func (l *listing) token() (json.Token, error) {
	l.bounded.allow(l.dec.InputOffset())
	t, err := l.dec.Token()
	return t, syntax(err)
}

// object reads what follows the { of a PodList.
func (l *listing) object() error {
	seen, haveItems := map[string]bool{}, false
	for l.dec.More() {
		key, err := l.token()
		if err != nil {
			return err
		}
		name, _ := key.(string) // the decoder refuses keys that are none
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
	_, err := l.token() // the closing brace, or what is wrong before it
	return err
}

// field reads a field of a list that is not its items.
func (l *listing) field(name string) error {
	l.bounded.allow(l.dec.InputOffset())
	want := ""
	switch name {
	case "metadata": // says nothing that is needed
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
	return nil // null is what a Go client makes of an empty list
}

// items reads what follows the [ of a list.
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
		l.bounded.allow(l.dec.InputOffset()) // for what is between two items
	}
	_, err := l.token()
	return err
}

var errPodTooLarge = fmt.Errorf("%w: a pod may have %d bytes of JSON", ErrTooLarge, MaxPod)

// syntax says of an end in the middle what it is.
func syntax(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the text ends too early")
	}
	return err
}

// bounded keeps the decoder, which reads a value until it ends, from reading more than a pod ahead.
type bounded struct {
	r    io.Reader
	held func(bytes int) error // may be nil
	// bytes from the start; what is before from is not in memory any more
	read, upTo, from int64
	most             int64 // that was held
}

// allow another pod from an offset on, and some space around it.
func (b *bounded) allow(offset int64) { b.from, b.upTo = offset, offset+MaxHeld }

func (b *bounded) Read(p []byte) (int, error) {
	left := b.upTo - b.read
	if left <= 0 {
		return 0, errPodTooLarge
	}
	n, err := b.r.Read(p[:min(int64(len(p)), left)])
	b.read += int64(n)
	if now := b.read - b.from; now > b.most {
		b.most = now
		if b.held != nil {
			err = cmp.Or(b.held(int(now)), err)
		}
	}
	return n, err
}

// clip shortens text of others for a message.
func clip(s string) string {
	const most = 100
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
