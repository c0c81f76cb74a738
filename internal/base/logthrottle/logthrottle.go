// Package logthrottle is the agent's log: what follows from each of a thousand looks is one line
// every ten seconds.
package logthrottle

import (
	"log/slog"
	"time"
)

// Every is the time between two lines that say the same.
const Every = 10 * time.Second

// most bounds how many different lines are remembered.
const most = 1000

// Logger is a logger for the parts of one loop: it belongs to that loop's goroutine. What runs
// beside the loop uses Logger.Logger only.
type Logger struct {
	*slog.Logger
	said map[string]time.Time // what was logged when, of lines that repeat
}

// New makes a Logger that has said nothing yet.
func New(log *slog.Logger) *Logger { return &Logger{Logger: log, said: map[string]time.Time{}} }

// Repeat logs what may be said again and again at most every ten seconds. The key tells which lines
// are the same.
func (l *Logger) Repeat(key string, log func()) {
	now := time.Now()
	if now.Sub(l.said[key]) < Every {
		return
	}
	if len(l.said) >= most {
		clear(l.said)
	}
	l.said[key] = now
	log()
}

// Afresh has every line logged again when it comes next: the state of the node has changed.
func (l *Logger) Afresh() { clear(l.said) }
