package endpoints

import (
	"fmt"
	"net/http"
	"time"
)

// The loop runs at least once a second. A very busy node may delay it. After hungLimit it counts as
// hung; after deadLimit a restart is more likely to help than waiting.
const (
	hungLimit = 5 * time.Second
	deadLimit = time.Minute
)

// health serves GET /healthz: 200 unless a restart of the agent would help.
func (e *Endpoints) health(w http.ResponseWriter, r *http.Request) {
	if _, ok := parameters(w, r); !ok {
		return
	}
	if ago, _, runs := e.o.LoopAge(); runs && ago > deadLimit {
		fail(w, http.StatusServiceUnavailable, hung(ago))
		return
	}
	fine(w)
}

// ready serves GET /readyz: 200 while the agent observes the node.
func (e *Endpoints) ready(w http.ResponseWriter, r *http.Request) {
	if _, ok := parameters(w, r); !ok {
		return
	}
	switch ago, why, runs := e.o.LoopAge(); {
	case !runs:
		fail(w, http.StatusServiceUnavailable, why)
	case ago > hungLimit:
		fail(w, http.StatusServiceUnavailable, hung(ago))
	default:
		fine(w)
	}
}

func hung(ago time.Duration) string {
	return fmt.Sprintf("the loop hangs: last run %v ago, the agent evicts no pods",
		ago.Round(time.Second))
}

func fine(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n"))
}
