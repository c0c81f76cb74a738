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

// maxLine limits the size of a frame, in bytes: 5,000 nodes with 10 pods each need about 100 MB.
const maxLine = 512 << 20

// reader reads frames, one JSON object per line, and skips empty lines.
type reader struct {
	name string // for errors
	src  *bufio.Reader
	max  int // limit of a line, in bytes
	line int // number of the last line read, from 1
	last time.Time
}

func newReader(r io.Reader, name string) *reader {
	return &reader{name: name, src: bufio.NewReaderSize(r, 1<<20), max: maxLine}
}

// next reads a frame. It returns io.EOF at the end.
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
			field, fault := strict.Explain(err, cut, reflect.TypeFor[Frame]())
			return nil, r.wrapError(field, fault)
		}
		if field, fault := f.check(); fault != "" {
			return nil, r.wrapError(field, fault)
		}
		if f.at.Before(r.last) {
			last := r.last.Format(time.RFC3339Nano)
			return nil, r.wrapError("time",
				fmt.Sprintf("%s is before the previous frame, %s: time goes backwards", f.Time, last))
		}
		r.last = f.at
		return f, nil
	}
}

func (r *reader) wrapError(field, fault string) error {
	return &strict.FieldError{File: r.name, Line: r.line, Field: field, Err: errors.New(fault)}
}

// readLine reads one line. cut is true if the last line has no line end.
func (r *reader) readLine() (text []byte, cut bool, err error) {
	r.line++
	for {
		part, err := r.src.ReadSlice('\n')
		if len(text)+len(part) > r.max {
			return nil, false, r.wrapError("", fmt.Sprintf("longer than %d bytes: want one frame per line", r.max))
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
			return nil, false, r.wrapError("", fmt.Sprintf("read failed: %v", err))
		}
	}
}
