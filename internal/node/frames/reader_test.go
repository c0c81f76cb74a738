package frames

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"jettison/internal/base/strict"
)

func frameAt(i int) string {
	return fmt.Sprintf("{\"time\":%q,\"summary\":null}\n", epoch.Add(time.Duration(i)*time.Second).Format(time.RFC3339Nano))
}

// A frame is returned as soon as its line is complete, also from a pipe that stays open, compressed
// or not.
func TestReaderReturnsCompleteLines(t *testing.T) {
	for _, packed := range []bool{false, true} {
		pipe, w := io.Pipe()
		next := make(chan *Frame)
		go func() {
			defer close(next)
			r, err := NewReader(pipe, "pipe")
			for err == nil {
				var f *Frame
				if f, err = r.Next(); err == nil {
					next <- f
				}
			}
			if err != io.EOF {
				t.Errorf("write the frame to the pipe: %v", err)
			}
		}()
		for i := range 3 {
			text := []byte(frameAt(i))
			if packed {
				var b bytes.Buffer
				z := gzip.NewWriter(&b)
				_, _ = z.Write(text)
				_ = z.Close()
				text = b.Bytes()
			}
			if _, err := w.Write(text); err != nil {
				t.Fatal(err)
			}
			if f := <-next; !f.At().Equal(epoch.Add(time.Duration(i) * time.Second)) {
				t.Errorf("time of frame %d = %v, want its own", i, f.At())
			}
		}
		_ = w.Close()
		<-next
	}
}

// Frames are returned in order, with or without empty lines between them, until the first error;
// none after it.
func TestReaderOrder(t *testing.T) {
	var text strings.Builder
	for i := range 500 {
		text.WriteString(frameAt(i))
		if i%7 == 0 {
			text.WriteString("\r\n  \n")
		}
	}
	text.WriteString("{}\n" + frameAt(1000))
	r, err := NewReader(strings.NewReader(text.String()), "frames")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 500 {
		f, err := r.Next()
		if err != nil || !f.At().Equal(epoch.Add(time.Duration(i)*time.Second)) {
			t.Fatalf("frames before the error: %d %v %v", i, f, err)
		}
	}
	var fault *strict.FieldError
	for range 2 {
		if _, err = r.Next(); !errors.As(err, &fault) || fault.Line != 500+2*72+1 || fault.Field != "time" {
			t.Fatal(err)
		}
	}
}

// A line without an end is read up to the limit. A last line without a newline is a normal frame.
func TestReaderBounds(t *testing.T) {
	r, _ := NewReader(io.MultiReader(strings.NewReader(frameAt(0)), endless{}), "endless")
	r.max = 1 << 20
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); err == nil || err.Error() != "endless: line 2: longer than 1048576 bytes: want one frame per line, as run --record writes them" {
		t.Errorf("line above the limit: error %v, want one with its line", err)
	}
	r, _ = NewReader(strings.NewReader(strings.TrimSpace(frameAt(0))), "frames")
	if _, err := r.Next(); err != nil {
		t.Errorf("last line without a newline: error %v", err)
	}
	r, _ = NewReader(strings.NewReader(frameAt(0)+frameAt(1)), "frames")
	r.Close()
	if _, err := r.Next(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("end after the last line: error %v, want io.EOF", err)
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}
