package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"jettison/internal/base/httpserver"
	"jettison/internal/cluster/report"
)

// Bounds of the server.
const (
	headerLimit = 5 * time.Second
	answerLimit = 60 * time.Second
	closeLimit  = 2 * time.Second
	// loopLimit is how long the loop may be silent. It goes round every ten seconds at least, to see
	// whether reads are fresh.
	loopLimit = 60 * time.Second
)

// serve answers until its context ends. A nil listener: nobody asks.
func (p *parts) serve(ctx context.Context, l net.Listener) {
	if l == nil {
		return
	}
	s := &http.Server{Handler: p.handler(), ReadHeaderTimeout: headerLimit, WriteTimeout: answerLimit,
		MaxHeaderBytes: 1 << 14}
	stop := context.AfterFunc(ctx, func() { httpserver.Shutdown(s, closeLimit) })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		p.o.Log.Error("the status is served no more", "error", err)
	}
}

func (p *parts) handler() http.Handler {
	mux := http.NewServeMux()
	metrics := promhttp.HandlerFor(p.metrics.registry, promhttp.HandlerOpts{})
	mux.HandleFunc("GET /healthz", p.health)
	mux.HandleFunc("GET /readyz", p.ready)
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET "+report.StatusPath, p.local(func(w http.ResponseWriter, r *http.Request) {
		p.answer(w, r, func(l *loop) (any, error) { return l.status(), nil })
	}))
	mux.HandleFunc("GET "+report.ExplainPath, p.local(func(w http.ResponseWriter, r *http.Request) {
		object := r.URL.Query().Get("object")
		p.answer(w, r, func(l *loop) (any, error) { return l.explain(object) })
	}))
	return mux
}

// local lets only who asks from the same host, or the same pod: names of a cluster's nodes and pods
// are for who may enter there.
func (p *parts) local(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		from, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !from.Addr().Unmap().IsLoopback() {
			send(w, http.StatusForbidden,
				report.Error{Error: "the status is for who asks from the same host: kubectl port-forward does"})
			return
		}
		h(w, r)
	}
}

// health is that the loop goes round, if this replica leads.
func (p *parts) health(w http.ResponseWriter, _ *http.Request) {
	if beat := p.beat.Load(); beat != 0 {
		if silent := time.Since(time.Unix(0, beat)); silent > loopLimit {
			http.Error(w, fmt.Sprintf("the loop is silent for %v", silent.Round(time.Second)),
				http.StatusInternalServerError)
			return
		}
	}
	_, _ = fmt.Fprintln(w, "ok")
}

// ready is that all is known that decisions need.
func (p *parts) ready(w http.ResponseWriter, _ *http.Request) {
	if missing := p.o.Mirror.Missing(); missing != "" {
		http.Error(w, missing+" are not known yet", http.StatusServiceUnavailable)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}

// answer has the loop answer, if this replica leads.
func (p *parts) answer(w http.ResponseWriter, r *http.Request, ask func(*loop) (any, error)) {
	if missing := p.o.Mirror.Missing(); missing != "" {
		send(w, http.StatusServiceUnavailable, report.Error{Error: missing + " are not known yet"})
		return
	}
	if p.leader != nil && !p.leader.Holds() {
		why := report.Error{Error: "this replica does not lead, and none is known to",
			Leader: p.leader.Holder()}
		if why.Leader != "" {
			why.Error = "this replica does not lead: ask the leader, " + why.Leader
		}
		send(w, http.StatusServiceUnavailable, why)
		return
	}
	type result struct {
		what any
		err  error
	}
	done := make(chan result, 1)
	select {
	case p.asks <- func(l *loop) {
		what, err := ask(l)
		done <- result{what, err}
	}:
	case <-r.Context().Done():
		return
	case <-time.After(closeLimit):
		send(w, http.StatusServiceUnavailable,
			report.Error{Error: "the loop does not answer: it may just begin, or end"})
		return
	}
	out := <-done
	if out.err != nil {
		send(w, http.StatusNotFound, report.Error{Error: out.err.Error()})
		return
	}
	send(w, http.StatusOK, out.what)
}

func send(w http.ResponseWriter, code int, what any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(what) // whoever asked may be gone
}
