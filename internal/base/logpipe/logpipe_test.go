package logpipe

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func format(text string) []byte { return []byte("own: " + text + "\n") }

func TestEverythingIsWritten(t *testing.T) {
	var out strings.Builder
	w := New(&out, format)
	for i := range 100 {
		fmt.Fprintf(w, "line %d\n", i)
	}
	w.Close(time.Minute)
	if got := out.String(); strings.Count(got, "\n") != 100 || !strings.HasSuffix(got, "line 99\n") {
		t.Errorf("written lines = %q, want 100, the last with 99", got)
	}
	fmt.Fprintln(w, "after the end") // is discarded without a panic
	w.Close(time.Minute)
}

// A blocked reader does not block a writer, and dropped lines are counted.
func TestSlowReaderBlocksNoWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, pipe := io.Pipe()
		w := New(pipe, format)
		for i := range lines + 11 {
			fmt.Fprintf(w, "line %d\n", i)
			synctest.Wait() // the first line is being written, the queue holds the next ones
		}
		start := time.Now()
		w.Close(time.Second)
		if waited := time.Since(start); waited != time.Second {
			t.Errorf("Close waited %v, want its limit of 1s", waited)
		}
		r.Close()
	})
}

func TestDroppedLinesAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, pipe := io.Pipe()
		w := New(pipe, format)
		fmt.Fprintln(w, "first")
		synctest.Wait()
		for range lines + 10 {
			fmt.Fprintln(w, "more")
		}
		text := make(chan string)
		go func() {
			all, _ := io.ReadAll(r)
			text <- string(all)
		}()
		synctest.Wait() // the queue is empty again
		fmt.Fprintln(w, "last")
		w.Close(time.Minute)
		pipe.Close()
		if got := <-text; !strings.Contains(got, "own: 10 log lines dropped") || !strings.HasSuffix(got, "last\n") {
			t.Errorf("end of the log = %q, want a line about 10 dropped ones and last", got[max(0, len(got)-200):])
		}
	})
}
