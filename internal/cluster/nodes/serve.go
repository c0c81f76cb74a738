package nodes

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"jettison/internal/cluster/report"
	"jettison/internal/cluster/statusserver"
)

// Limits of the server.
const (
	// queryTimeout is the maximum time until the loop receives a query.
	queryTimeout = 2 * time.Second
	// loopTimeout is the maximum time without an iteration of a healthy loop, which runs at least
	// every maxSleep.
	loopTimeout = 60 * time.Second
)

// serve answers requests until its context ends. Without a listener it returns immediately.
func (p *controller) serve(ctx context.Context, l net.Listener) {
	if l == nil {
		return
	}
	if err := statusserver.Serve(ctx, l, p.handler()); err != nil {
		//log: The HTTP server for health, metrics and status stopped. Everything else keeps
		//  running.
		//do: Restart the program and check --address.
		p.deps.Log.Error("status server failed", "error", err)
	}
}

func (p *controller) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", p.health)
	mux.HandleFunc("GET /readyz", p.ready)
	mux.Handle("GET /metrics", statusserver.Metrics(p.metrics.registry))
	mux.HandleFunc("GET "+report.StatusPath, p.localOnly(func(w http.ResponseWriter, r *http.Request) {
		p.query(w, r, func(l *loop) (any, error) { return l.status(), nil })
	}))
	mux.HandleFunc("GET "+report.ExplainPath, p.localOnly(func(w http.ResponseWriter, r *http.Request) {
		object := r.URL.Query().Get("object")
		p.query(w, r, func(l *loop) (any, error) { return l.explain(object) })
	}))
	return mux
}

// localOnly rejects requests from other hosts. The names of nodes and pods are only for users with
// access to this host or pod.
func (p *controller) localOnly(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !statusserver.IsLocal(r) {
			statusserver.WriteJSON(w, http.StatusForbidden,
				report.Error{Error: "status is only served to this host: use kubectl port-forward"})
			return
		}
		h(w, r)
	}
}

// health fails if this replica leads and its loop hangs.
func (p *controller) health(w http.ResponseWriter, _ *http.Request) {
	if last := p.lastLoop.Load(); last != nil {
		if silent := time.Since(*last); silent > loopTimeout {
			http.Error(w, fmt.Sprintf("loop blocked for %v", silent.Round(time.Second)),
				http.StatusInternalServerError)
			return
		}
	}
	_, _ = fmt.Fprintln(w, "ok")
}

// ready fails until the mode is allowed and the mirror has synced. A rollout keeps the older
// replicas until then.
func (p *controller) ready(w http.ResponseWriter, _ *http.Request) {
	if unsynced := p.deps.Mirror.Unsynced(); unsynced != "" {
		http.Error(w, unsynced+" not synced yet", http.StatusServiceUnavailable)
		return
	}
	if !p.checked.Load() {
		http.Error(w, "mode not checked yet", http.StatusServiceUnavailable)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}

// query runs a function in the loop and writes its result. It fails if this replica does not lead.
func (p *controller) query(w http.ResponseWriter, r *http.Request, f func(*loop) (any, error)) {
	if unsynced := p.deps.Mirror.Unsynced(); unsynced != "" {
		statusserver.WriteJSON(w, http.StatusServiceUnavailable,
			report.Error{Error: unsynced + " are not known yet"})
		return
	}
	if p.leader != nil && !p.leader.Holds() {
		response := report.Error{Error: "this replica is not the leader and knows of none",
			Leader: p.leader.Holder()}
		if response.Leader != "" {
			response.Error = "this replica is not the leader: ask the leader, " + response.Leader
		}
		statusserver.WriteJSON(w, http.StatusServiceUnavailable, response)
		return
	}
	if !p.checked.Load() {
		statusserver.WriteJSON(w, http.StatusServiceUnavailable, report.Error{
			Error: "mode " + p.deps.Config.Mode + " is not allowed yet: the log of this replica has the reason"})
		return
	}
	type result struct {
		value any
		err   error
	}
	done := make(chan result, 1)
	select {
	case p.queries <- func(l *loop) {
		value, err := f(l)
		done <- result{value, err}
	}:
	case <-r.Context().Done():
		return
	case <-time.After(queryTimeout):
		statusserver.WriteJSON(w, http.StatusServiceUnavailable,
			report.Error{Error: "loop not running: starting or stopping, try again"})
		return
	}
	out := <-done
	if out.err != nil {
		statusserver.WriteJSON(w, http.StatusNotFound, report.Error{Error: out.err.Error()})
		return
	}
	statusserver.WriteJSON(w, http.StatusOK, out.value)
}
