// Package logthrottle provides the agent's logger, which writes a repeated line at most every ten
// seconds.
package logthrottle

import (
	"log/slog"
	"time"
)

// Every is the shortest interval between two equal lines.
const Every = 10 * time.Second

// maxKeys bounds the number of remembered lines.
const maxKeys = 1000

// Logger is a logger for the parts of one loop, and belongs to that loop's goroutine. Other
// goroutines may use Logger.Logger only.
type Logger struct {
	*slog.Logger
	logged map[string]time.Time // time of the last line by key
}

// New returns a Logger that has logged no line.
func New(log *slog.Logger) *Logger { return &Logger{Logger: log, logged: map[string]time.Time{}} }

// Repeat calls log at most every ten seconds for the same key.
func (l *Logger) Repeat(key string, log func()) {
	now := time.Now()
	if now.Sub(l.logged[key]) < Every {
		return
	}
	if len(l.logged) >= maxKeys {
		clear(l.logged)
	}
	l.logged[key] = now
	log()
}

// Reset makes the next line of each key be logged: the state of the node has changed.
func (l *Logger) Reset() { clear(l.logged) }
