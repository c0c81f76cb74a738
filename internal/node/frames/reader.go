package frames

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"iter"
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

// MaxLine is the maximum size of a frame, in bytes. A frame of 110 pods has about 400 KB.
const MaxLine = 64 << 20

// Buffer sizes, large enough to decode several frames in parallel, and the maximum number of
// decoders.
const (
	packedBuffer = 256 << 10
	plainBuffer  = 2 << 20
	maxDecoders  = 4
)

// Reader reads frames, one JSON object per line, and skips empty lines. It is strict: an unknown
// field or an implausible value is a *strict.FieldError, except for an implausible figure in a
// Summary (see Warn). It decodes available lines in parallel,
// but never waits for a further line before it returns a frame.
type Reader struct {
	name  string // in errors
	src   *bufio.Reader
	max   int // longest line
	line  int // last line that was read
	given int // line of the last returned frame
	last  time.Time
	err   error // sticky

	ahead []*decoding // in line order
	spare []*decoding // for reuse of their buffers
	atEnd bool        // no further line will be read
	most  int         // maximum number of parallel decoders

	// Warn is called for the first implausible figure in a Summary, with a *strict.FieldError, unless
	// it is nil. The figure counts as absent, and so do further ones.
	Warn func(error)
}

// decoding is a line that is decoded to a frame. Except for done, it belongs to its goroutine until
// done was received.
type decoding struct {
	text  []byte
	line  int
	cut   bool   // the last line, without a newline
	frame *Frame // nil: the line is empty, or err is set
	err   error
	// an implausible figure that was removed from the frame; nil: none
	implausible error
	done        chan struct{} // one slot
}

// NewReader reads from a file, plain or compressed with gzip. name is the file's name for errors.
func NewReader(r io.Reader, name string) (*Reader, error) {
	out := &Reader{name: name, max: MaxLine, most: min(runtime.GOMAXPROCS(0), maxDecoders)}
	packed := bufio.NewReaderSize(r, packedBuffer)
	if magic, _ := packed.Peek(2); !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		out.src = bufio.NewReaderSize(packed, plainBuffer)
		return out, nil
	}
	unpacked, err := gzip.NewReader(packed)
	if err != nil {
		err = fmt.Errorf("invalid gzip file: %v", err)
		return nil, &strict.FieldError{File: name, Line: 1, Err: err}
	}
	unpacked.Multistream(false)
	out.src = bufio.NewReaderSize(&frameReader{unpacked: unpacked, packed: packed}, plainBuffer)
	return out, nil
}

// frameReader fills the caller's buffer while compressed data is buffered, because gzip.Reader returns a
// few KB at a time. At the end of a compressed frame gzip.Reader waits for the next one before it
// returns data, so frameReader reads each frame separately.
type frameReader struct {
	unpacked *gzip.Reader
	packed   *bufio.Reader
	ended    bool // the compressed frame was read; another one may follow
}

// packedEnd exceeds the bytes after a compressed frame's data: the end of its last block, checksum
// and size.
const packedEnd = 64

func (e *frameReader) Read(b []byte) (n int, err error) {
	for n < len(b) && (n == 0 || e.packed.Buffered() > packedEnd) {
		if e.ended {
			if err := e.unpacked.Reset(e.packed); err != nil {
				return n, err // io.EOF: end of the file
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

// Line returns the line of the last frame, from 1.
func (r *Reader) Line() int { return r.given }

// Next reads a frame. It returns io.EOF at the end. Errors are sticky.
func (r *Reader) Next() (*Frame, error) {
	for r.err == nil {
		for !r.atEnd && len(r.ahead) < r.most && (len(r.ahead) == 0 || r.lineIsBuffered()) {
			r.begin()
		}
		d := r.ahead[0]
		r.ahead = r.ahead[1:]
		<-d.done
		r.given, r.err = d.line, d.err
		frame := d.frame
		if d.implausible != nil && d.err == nil && r.Warn != nil {
			r.Warn(d.implausible)
			r.Warn = nil
		}
		d.text, d.frame, d.implausible = d.text[:0], nil, nil
		r.spare = append(r.spare, d)
		if r.err == nil && frame != nil && frame.at.Before(r.last) {
			what := fmt.Sprintf("%s is before the previous frame, %s: time goes backwards", frame.Time,
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

// Close waits for the decoders. It does not close the underlying file.
func (r *Reader) Close() {
	for _, d := range r.ahead {
		<-d.done
	}
	r.ahead, r.atEnd = nil, true
	if r.err == nil {
		r.err = os.ErrClosed
	}
}

// lineIsBuffered reports whether a complete line is buffered.
func (r *Reader) lineIsBuffered() bool {
	there, _ := r.src.Peek(r.src.Buffered())
	return bytes.IndexByte(there, '\n') >= 0
}

// begin reads a line and starts its decoder.
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

// decode returns the frame of a line; nil: the line is empty. It reads only immutable fields of the
// Reader.
func (r *Reader) decode(d *decoding) (*Frame, error) {
	if len(bytes.TrimSpace(d.text)) == 0 {
		return nil, nil
	}
	f := &Frame{}
	err := json.Unmarshal(d.text, f, reading)
	if e := (*json.SemanticError)(nil); errors.As(err, &e) && e.JSONKind == '0' && inSummary(e.JSONPointer) {
		d.implausible = r.fault(d.line, strict.Field(e.JSONPointer), fmt.Sprintf("%.40s is impossible", e.JSONValue))
		f = &Frame{}
		err = json.Unmarshal(d.text, f, readingImpossible)
	}
	if err != nil {
		field, what := strict.Explain(err, d.cut, reflect.TypeFor[Frame]())
		return nil, r.fault(d.line, field, what)
	}
	for name, s := range f.summaries() {
		if e := summaryv1.Implausible(s); e != nil {
			if d.implausible == nil {
				d.implausible = r.fault(d.line, name+"."+e.Field, e.Err.Error())
			}
			removeImplausible(reflect.ValueOf(s).Elem())
		}
	}
	if field, what := check(f, d.text); what != "" {
		return nil, r.fault(d.line, field, what)
	}
	return f, nil
}

func (r *Reader) fault(line int, field, what string) error {
	return &strict.FieldError{File: r.name, Line: line, Field: field, Err: errors.New(what)}
}

// readLine reads one line into d.text. cut: the last line, without a newline.
func (r *Reader) readLine(d *decoding) (cut bool, err error) {
	for {
		part, err := r.src.ReadSlice('\n')
		if len(d.text)+len(part) > r.max {
			return false, r.fault(d.line, "",
				fmt.Sprintf("longer than %d bytes: want one frame per line, as run --record writes them", r.max))
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
			return false, r.fault(d.line, "", "the compressed file is truncated here, after complete frames")
		case errors.Is(err, io.ErrUnexpectedEOF):
			return false, r.fault(d.line, "",
				"the compressed file is truncated in this frame")
		default:
			return false, r.fault(d.line, "", fmt.Sprintf("read failed: %v", err))
		}
	}
}

// summaries yields the Summaries of a frame, by the names of their fields.
func (f *Frame) summaries() iter.Seq2[string, *v1alpha1.Summary] {
	return func(yield func(string, *v1alpha1.Summary) bool) {
		if f.Summary != nil && !yield("summary", f.Summary) {
			return
		}
		if f.AfterReclaim != nil {
			yield("afterReclaim", f.AfterReclaim)
		}
	}
}

// check rejects JSON that is not a valid frame. It returns the field and the reason.
func check(f *Frame, text []byte) (field, what string) {
	at, err := strict.RequireTime(f.Time)
	if err != nil {
		return "time", err.Error()
	}
	f.at = at
	if f.Summary == nil && !hasKey(text, "summary") {
		return "summary", "missing: want null if every source failed"
	}
	for name, s := range f.summaries() {
		if err := summaryv1.Check(s); err != nil {
			var fe *strict.FieldError
			if errors.As(err, &fe) {
				return name + "." + fe.Field, fe.Err.Error()
			}
			return name, err.Error()
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

// hasKey reports whether the JSON object in text has a key.
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
			return field, fmt.Sprintf("%.64q is not unique, first in pods[%d]", uid, before)
		}
		seen[uid] = i
	}
	return "", ""
}
