package endpoints

import (
	"fmt"
	"net/http"
	"time"
)

// The loop turns once a second at least. A node that is very busy may hold it up for some; within
// hungLimit it is known to hang, and beyond deadLimit a new process is more likely to help than
// waiting.
const (
	hungLimit = 5 * time.Second
	deadLimit = time.Minute
)

// health is GET /healthz: 200 as long as it makes no sense to start the agent anew.
func (e *Endpoints) health(w http.ResponseWriter, r *http.Request) {
	if _, ok := parameters(w, r); !ok {
		return
	}
	if ago, _, runs := e.o.Turned(); runs && ago > deadLimit {
		fail(w, http.StatusServiceUnavailable, hung(ago))
		return
	}
	fine(w)
}

// ready is GET /readyz: 200 while the node is watched.
func (e *Endpoints) ready(w http.ResponseWriter, r *http.Request) {
	if _, ok := parameters(w, r); !ok {
		return
	}
	switch ago, why, runs := e.o.Turned(); {
	case !runs:
		fail(w, http.StatusServiceUnavailable, why)
	case ago > hungLimit:
		fail(w, http.StatusServiceUnavailable, hung(ago))
	default:
		fine(w)
	}
}

func hung(ago time.Duration) string {
	return fmt.Sprintf("the loop hangs: it turned %v ago for the last time, and nothing is evicted",
		ago.Round(time.Second))
}

func fine(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n"))
}
