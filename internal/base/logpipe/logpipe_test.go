package logpipe

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func say(text string) []byte { return []byte("said: " + text + "\n") }

func TestEverythingIsWritten(t *testing.T) {
	var out strings.Builder
	w := New(&out, say)
	for i := range 100 {
		fmt.Fprintf(w, "line %d\n", i)
	}
	w.Close(time.Minute)
	if got := out.String(); strings.Count(got, "\n") != 100 || !strings.HasSuffix(got, "line 99\n") {
		t.Errorf("got %q", got)
	}
	fmt.Fprintln(w, "after the end") // is lost, and no panic
	w.Close(time.Minute)
}

// A reader that does not read holds up no writer; what was lost is counted.
func TestASlowReaderHoldsUpNoWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, pipe := io.Pipe()
		w := New(pipe, say)
		for i := range lines + 11 {
			fmt.Fprintf(w, "line %d\n", i)
			synctest.Wait() // the first line is on its way: the queue holds the next ones
		}
		start := time.Now()
		w.Close(time.Second)
		if waited := time.Since(start); waited != time.Second {
			t.Errorf("closing waited %v, want its limit", waited)
		}
		r.Close()
	})
}

func TestWhatWasDroppedIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, pipe := io.Pipe()
		w := New(pipe, say)
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
		if got := <-text; !strings.Contains(got, "said: 10 log lines were dropped") || !strings.HasSuffix(got, "last\n") {
			t.Errorf("got %q", got[max(0, len(got)-200):])
		}
	})
}
