package logthrottle

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What follows from each of many looks is one line every ten seconds, and another at once when the state of the node has changed.
func TestALineIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		l := New(slog.New(slog.NewTextHandler(&text, nil)))
		say := func(key string, want int) {
			t.Helper()
			l.Repeat(key, func() { l.Info(key) })
			if got := strings.Count(text.String(), "msg="+key); got != want {
				t.Errorf("%s was said %d times, want %d", key, got, want)
			}
		}
		say("short", 1)
		say("short", 1)
		say("other", 1)
		time.Sleep(Every - 1)
		say("short", 1)
		time.Sleep(time.Nanosecond)
		say("short", 2)
		l.Afresh()
		say("short", 3)
	})
}

// However many different lines there are, what is remembered of them is bounded.
func TestLinesAreForgotten(t *testing.T) {
	l := New(slog.New(slog.DiscardHandler))
	for i := range 3 * most {
		if l.Repeat(fmt.Sprint(i), func() {}); len(l.said) > most {
			t.Fatalf("%d lines are remembered", len(l.said))
		}
	}
}
