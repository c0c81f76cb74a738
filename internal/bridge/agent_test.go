package bridge

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"

	"jettison/api"
)

// agent is a fake agent on a socket, controlled by a test.
type agent struct {
	t      testing.TB
	socket string

	mu      sync.Mutex
	changed chan struct{} // closed and replaced after each change
	records []*api.Record // by ID
	turn    map[string]int
	turns   int
	state   *api.State // nil: 503
	pods    map[string]*v1.Pod
	version uint64
	puts    []string // requests that change pods
	minor   string   // the agent's minor version; empty: not sent
	later   string   // line that the agent sends before each record
}

func newAgent(t testing.TB) *agent {
	dir, err := os.MkdirTemp("", "b") // paths of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{t: t, socket: filepath.Join(dir, "s"), changed: make(chan struct{}), turn: map[string]int{}, pods: map[string]*v1.Pod{}}
	l, err := net.Listen("unix", a.socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: a}
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		<-served
		_ = os.RemoveAll(dir)
	})
	return a
}

func (a *agent) change(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *agent) await(what string, holds func() bool) {
	a.t.Helper()
	for {
		a.mu.Lock()
		ok, changed := holds(), a.changed
		a.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-a.t.Context().Done():
			a.t.Fatalf("the test ended before: %s", what)
		}
	}
}

// setRecord adds or replaces a record.
func (a *agent) setRecord(r api.Record) {
	a.change(func() {
		at, known := slices.BinarySearchFunc(a.records, r.ID, func(x *api.Record, id string) int { return strings.Compare(x.ID, id) })
		if known {
			a.records[at] = &r
		} else {
			a.records = slices.Insert(a.records, at, &r)
		}
		a.turns++
		a.turn[r.ID] = a.turns
	})
}

// restart makes the agent lose its pods, as a new process.
func (a *agent) restart() {
	a.change(func() { a.pods, a.version = map[string]*v1.Pod{}, 0 })
}

func (a *agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a.minor != "" {
		w.Header().Set(api.HeaderMinor, a.minor)
	}
	switch {
	case r.URL.Path == api.PathRecords:
		a.follow(w, r)
	case r.URL.Path == api.PathEvents: // no events
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case r.URL.Path == api.PathState:
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.state == nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			_ = json.NewEncoder(w).Encode(api.ErrorAnswer{Error: "the loop does not answer"})
			return
		}
		_ = json.NewEncoder(w).Encode(a.state)
	case strings.HasPrefix(r.URL.Path, api.PathPods):
		a.put(w, r)
	default:
		a.t.Errorf("unexpected request to the agent: %s", r.URL)
	}
}

func (a *agent) put(w http.ResponseWriter, r *http.Request) {
	a.change(func() {
		if r.Method == http.MethodDelete {
			uid := strings.TrimPrefix(r.URL.Path, api.PathPods+"/")
			delete(a.pods, uid)
			a.puts = append(a.puts, "delete "+uid)
			w.WriteHeader(http.StatusNoContent)
			return
		}
		var pods []*v1.Pod
		decode := json.NewDecoder(r.Body)
		if err := decode.Decode(&pods); err != nil {
			a.t.Error(err)
		}
		what := "put"
		if r.URL.Query().Get("replace") == "true" {
			a.pods, what = map[string]*v1.Pod{}, "replace"
		}
		for _, p := range pods {
			a.pods[string(p.UID)] = p
			what += " " + string(p.UID)
		}
		a.version++
		a.puts = append(a.puts, what)
		_ = json.NewEncoder(w).Encode(api.PutAnswer{Pods: len(pods), Version: a.version})
	})
}

// follow streams records as the agent does: existing ones by ID, then each changed one.
func (a *agent) follow(w http.ResponseWriter, r *http.Request) {
	after, encode := r.URL.Query().Get("after"), json.NewEncoder(w)
	a.mu.Lock()
	for _, x := range a.records {
		_, _ = io.WriteString(w, a.later)
		if x.ID > after {
			_ = encode.Encode(api.RecordsLine{Record: x})
		}
	}
	_ = encode.Encode(api.RecordsLine{Synced: true})
	at := a.turns
	for {
		for _, x := range a.records {
			if a.turn[x.ID] > at && x.ID > after {
				_ = encode.Encode(api.RecordsLine{Record: x})
			}
		}
		at = a.turns
		changed := a.changed
		a.mu.Unlock()
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
		a.mu.Lock()
	}
}
