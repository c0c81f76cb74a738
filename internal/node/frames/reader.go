package frames

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"runtime"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"jettison/internal/base/strict"
	"jettison/internal/node/summaryv1"
)

// MaxLine is the longest frame that is read, in bytes. One of 110 pods has some 400 KB.
const MaxLine = 64 << 20

// How much of a file is read at once, so that several frames can be decoded at a time, and how many
// are.
const (
	packedBuffer = 256 << 10
	plainBuffer  = 2 << 20
	maxDecoders  = 4
)

// Reader reads frames, one JSON object a line; empty lines are passed over. It is strict: what it
// does not know or cannot be true is a *strict.FieldError. Lines that have come already are decoded
// side by side, but it never waits for another one before it gives what it has.
type Reader struct {
	name  string // in errors
	src   *bufio.Reader
	max   int // longest line
	line  int // of the last that was read
	given int // of the last frame that was given
	last  time.Time
	err   error // once there is one it stays

	ahead []*decoding // in the order of their lines
	spare []*decoding // whose buffers are used again
	atEnd bool        // nothing more is to be read
	most  int         // how many may be decoded at a time
}

// decoding is a line on its way to a frame. All but done belongs to its goroutine until done has
// been received from.
type decoding struct {
	text  []byte
	line  int
	cut   bool   // it is the last one and has no end
	frame *Frame // nil: the line is empty, or err is set
	err   error
	done  chan struct{} // one slot
}

// NewReader reads from a file, compressed with gzip or not. The name is the file's, for errors.
func NewReader(r io.Reader, name string) (*Reader, error) {
	out := &Reader{name: name, max: MaxLine, most: min(runtime.GOMAXPROCS(0), maxDecoders)}
	packed := bufio.NewReaderSize(r, packedBuffer)
	if magic, _ := packed.Peek(2); !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		out.src = bufio.NewReaderSize(packed, plainBuffer)
		return out, nil
	}
	unpacked, err := gzip.NewReader(packed)
	if err != nil {
		err = fmt.Errorf("it begins as a compressed file and is none: %v", err)
		return nil, &strict.FieldError{File: name, Line: 1, Err: err}
	}
	unpacked.Multistream(false)
	out.src = bufio.NewReaderSize(&eager{unpacked: unpacked, packed: packed}, plainBuffer)
	return out, nil
}

// eager unpacks as much as asked for while there is something to unpack: gzip.Reader gives a few KB
// at a time. Behind the end of a packed frame that waits for the next one before it gives what it
// has, so each is read on its own here.
type eager struct {
	unpacked *gzip.Reader
	packed   *bufio.Reader
	ended    bool // the packed frame is read, another one may follow
}

// packedEnd is more than what comes after a packed frame's data: the end of its last block,
// checksum and size.
const packedEnd = 64

func (e *eager) Read(b []byte) (n int, err error) {
	for n < len(b) && (n == 0 || e.packed.Buffered() > packedEnd) {
		if e.ended {
			if err := e.unpacked.Reset(e.packed); err != nil {
				return n, err // io.EOF: there is no more
			}
			e.unpacked.Multistream(false)
			e.ended = false
		}
		more, err := e.unpacked.Read(b[n:])
		n += more
		if e.ended = err == io.EOF; err != nil && !e.ended {
			return n, err
		}
	}
	return n, nil
}

// Line is that of the last frame, from 1.
func (r *Reader) Line() int { return r.given }

// Next reads a frame. io.EOF: there is no more. After any error there is none.
func (r *Reader) Next() (*Frame, error) {
	for r.err == nil {
		for !r.atEnd && len(r.ahead) < r.most && (len(r.ahead) == 0 || r.lineHasCome()) {
			r.begin()
		}
		d := r.ahead[0]
		r.ahead = r.ahead[1:]
		<-d.done
		r.given, r.err = d.line, d.err
		frame := d.frame
		d.text, d.frame = d.text[:0], nil
		r.spare = append(r.spare, d)
		if r.err == nil && frame != nil && frame.at.Before(r.last) {
			what := fmt.Sprintf("%s is before the frame before it, %s: time goes backwards", frame.Time,
				r.last.Format(time.RFC3339Nano))
			r.err = r.fault(d.line, "time", what)
		}
		if r.err == nil && frame != nil {
			r.last = frame.at
			return frame, nil
		}
	}
	r.Close()
	return nil, r.err
}

// Close waits for what is being decoded. What is read from stays open.
func (r *Reader) Close() {
	for _, d := range r.ahead {
		<-d.done
	}
	r.ahead, r.atEnd = nil, true
	if r.err == nil {
		r.err = os.ErrClosed
	}
}

// lineHasCome reports whether a whole line can be read without waiting for it.
func (r *Reader) lineHasCome() bool {
	there, _ := r.src.Peek(r.src.Buffered())
	return bytes.IndexByte(there, '\n') >= 0
}

// begin reads a line and has it decoded.
func (r *Reader) begin() {
	d := &decoding{done: make(chan struct{}, 1)}
	if n := len(r.spare); n > 0 {
		d, r.spare = r.spare[n-1], r.spare[:n-1]
	}
	r.ahead = append(r.ahead, d)
	r.line++
	d.line = r.line
	if d.cut, d.err = r.readLine(d); d.err != nil {
		r.atEnd = true
		d.done <- struct{}{}
		return
	}
	go func() {
		d.frame, d.err = r.decode(d)
		d.done <- struct{}{}
	}()
}

// decode makes a frame of a line; nil: it is empty. It reads only what never changes of the Reader.
func (r *Reader) decode(d *decoding) (*Frame, error) {
	if len(bytes.TrimSpace(d.text)) == 0 {
		return nil, nil
	}
	f := &Frame{}
	if err := json.Unmarshal(d.text, f, reading); err != nil {
		field, what := strict.Explain(err, d.cut, reflect.TypeFor[Frame]())
		return nil, r.fault(d.line, field, what)
	}
	if field, what := check(f, d.text); what != "" {
		return nil, r.fault(d.line, field, what)
	}
	return f, nil
}

func (r *Reader) fault(line int, field, what string) error {
	return &strict.FieldError{File: r.name, Line: line, Field: field, Err: errors.New(what)}
}

// readLine reads one line into d.text. cut: it is the last one and has no end.
func (r *Reader) readLine(d *decoding) (cut bool, err error) {
	for {
		part, err := r.src.ReadSlice('\n')
		if len(d.text)+len(part) > r.max {
			return false, r.fault(d.line, "",
				fmt.Sprintf("longer than %d bytes: want one frame a line, as run --record writes them", r.max))
		}
		d.text = append(d.text, part...)
		switch {
		case err == nil:
			return false, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case err == io.EOF && len(d.text) == 0:
			return false, io.EOF
		case err == io.EOF:
			return true, nil
		case errors.Is(err, io.ErrUnexpectedEOF) && len(d.text) == 0:
			return false, r.fault(d.line, "", "the compressed file was cut off here, after whole frames")
		case errors.Is(err, io.ErrUnexpectedEOF):
			return false, r.fault(d.line, "",
				"the compressed file ends in the middle of this frame: it was cut off")
		default:
			return false, r.fault(d.line, "", fmt.Sprintf("cannot read on: %v", err))
		}
	}
}

// check refuses what is JSON and cannot be a frame. It returns the field and what is wrong with it.
func check(f *Frame, text []byte) (field, what string) {
	at, err := strict.RequireTime(f.Time)
	if err != nil {
		return "time", err.Error()
	}
	f.at = at
	if f.Summary == nil && !hasKey(text, "summary") {
		return "summary", "missing: null says that every source failed"
	}
	for _, s := range []struct {
		name    string
		summary *v1alpha1.Summary
	}{{"summary", f.Summary}, {"afterReclaim", f.AfterReclaim}} {
		if s.summary == nil {
			continue
		}
		if err := summaryv1.Check(s.summary); err != nil {
			var fe *strict.FieldError
			if errors.As(err, &fe) {
				return s.name + "." + fe.Field, fe.Err.Error()
			}
			return s.name, err.Error()
		}
	}
	if field, what := checkPods(f.Pods); what != "" {
		return field, what
	}
	for _, a := range []struct {
		name  string
		agent *Agent
	}{{"agent", f.Agent}, {"agentAfterReclaim", f.AgentAfterReclaim}} {
		if field, what := a.agent.check(); what != "" {
			return a.name + "." + field, what
		}
	}
	return "", ""
}

// hasKey reports whether an object that was read already has a key.
func hasKey(text []byte, key string) bool {
	d := jsontext.NewDecoder(bytes.NewReader(text))
	if _, err := d.ReadToken(); err != nil {
		return false
	}
	for d.PeekKind() == '"' {
		t, err := d.ReadToken()
		if err != nil {
			return false
		}
		if t.String() == key {
			return true
		}
		if d.SkipValue() != nil {
			return false
		}
	}
	return false
}

func checkPods(pods []v1.Pod) (field, what string) {
	seen := map[string]int{}
	for i := range pods {
		field, uid := fmt.Sprintf("pods[%d].metadata.uid", i), string(pods[i].UID)
		if uid == "" {
			return field, "missing"
		}
		if before, twice := seen[uid]; twice {
			return field, fmt.Sprintf("%.64q is there a second time, first in pods[%d]", uid, before)
		}
		seen[uid] = i
	}
	return "", ""
}
