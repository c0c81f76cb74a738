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

// A repeated line is logged every ten seconds, and immediately after Reset.
func TestRepeatedLineIsThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		l := New(slog.New(slog.NewTextHandler(&text, nil)))
		repeat := func(key string, want int) {
			t.Helper()
			l.Repeat(key, func() { l.Info(key) })
			if got := strings.Count(text.String(), "msg="+key); got != want {
				t.Errorf("line %s logged %d times, want %d", key, got, want)
			}
		}
		repeat("short", 1)
		repeat("short", 1)
		repeat("other", 1)
		time.Sleep(Every - 1)
		repeat("short", 1)
		time.Sleep(time.Nanosecond)
		repeat("short", 2)
		l.Reset()
		repeat("short", 3)
	})
}

// The number of remembered lines is bounded.
func TestKeysAreBounded(t *testing.T) {
	l := New(slog.New(slog.DiscardHandler))
	for i := range 3 * maxKeys {
		if l.Repeat(fmt.Sprint(i), func() {}); len(l.logged) > maxKeys {
			t.Fatalf("%d keys remembered, want at most %d", len(l.logged), maxKeys)
		}
	}
}
