package replay

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"time"

	"github.com/go-json-experiment/json"

	"jettison/internal/base/strict"
)

// maxLine is the longest frame that is read, in bytes: 5,000 nodes of 10 pods have some 100 MB.
const maxLine = 512 << 20

// reader reads frames, one JSON object a line; empty lines are passed over.
type reader struct {
	name string // in errors
	src  *bufio.Reader
	max  int // longest line
	line int // of the last that was read, from 1
	last time.Time
}

func newReader(r io.Reader, name string) *reader {
	return &reader{name: name, src: bufio.NewReaderSize(r, 1<<20), max: maxLine}
}

// next reads a frame. io.EOF: there is no more.
func (r *reader) next() (*Frame, error) {
	for {
		text, cut, err := r.readLine()
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		f := &Frame{}
		if err := json.Unmarshal(text, f, decodeOptions); err != nil {
			field, what := strict.Explain(err, cut, reflect.TypeFor[Frame]())
			return nil, r.wrapError(field, what)
		}
		if field, what := f.check(); what != "" {
			return nil, r.wrapError(field, what)
		}
		if f.at.Before(r.last) {
			last := r.last.Format(time.RFC3339Nano)
			return nil, r.wrapError("time",
				fmt.Sprintf("%s is before the frame before it, %s: time goes backwards", f.Time, last))
		}
		r.last = f.at
		return f, nil
	}
}

func (r *reader) wrapError(field, what string) error {
	return &strict.FieldError{File: r.name, Line: r.line, Field: field, Err: errors.New(what)}
}

// readLine reads one line. cut: it is the last one and has no end.
func (r *reader) readLine() (text []byte, cut bool, err error) {
	r.line++
	for {
		part, err := r.src.ReadSlice('\n')
		if len(text)+len(part) > r.max {
			return nil, false, r.wrapError("", fmt.Sprintf("longer than %d bytes: want one frame a line", r.max))
		}
		text = append(text, part...)
		switch {
		case err == nil:
			return text, false, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(text) == 0:
			return nil, false, io.EOF
		case errors.Is(err, io.EOF):
			return text, true, nil
		default:
			return nil, false, r.wrapError("", fmt.Sprintf("cannot read on: %v", err))
		}
	}
}
