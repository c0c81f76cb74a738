package endpoints

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"jettison/api"
)

// maxProfileTime bounds the duration of a CPU profile.
const maxProfileTime = time.Minute

// profile serves GET /debug/pprof/ and the paths below it, as go tool pprof requests them.
// net/http/pprof would link the tracer and more.
func profile(w http.ResponseWriter, r *http.Request) {
	values, ok := parameters(w, r, "seconds", "debug", "gc")
	if !ok {
		return
	}
	name := strings.TrimPrefix(r.URL.Path, api.PathPprof)
	switch p := pprof.Lookup(name); {
	case name == "":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintln(w, "profile")
		for _, p := range pprof.Profiles() {
			fmt.Fprintln(w, p.Name())
		}
	case name == "profile":
		profileCPU(w, r, values.Get("seconds"))
	case p == nil:
		fail(w, http.StatusNotFound, fmt.Sprintf("unknown profile %.60q: %s lists the profiles", name,
			api.PathPprof))
	case values.Has("seconds"): // of two profiles, go tool pprof -diff_base shows the difference
		fail(w, http.StatusBadRequest, fmt.Sprintf("seconds: only %sprofile has this parameter",
			api.PathPprof))
	default:
		if gc, _ := strconv.Atoi(values.Get("gc")); gc > 0 && name == "heap" {
			runtime.GC()
		}
		debug, _ := strconv.Atoi(values.Get("debug")) // 0: the format that go tool pprof reads
		w.Header().Set("Content-Type", "application/octet-stream")
		_ = p.WriteTo(w, debug) // fails only if the client has closed
	}
}

func profileCPU(w http.ResponseWriter, r *http.Request, seconds string) {
	n := 30.0
	if seconds != "" {
		var err error
		if n, err = strconv.ParseFloat(seconds, 64); err != nil ||
			!(n > 0 && n <= maxProfileTime.Seconds()) {
			fail(w, http.StatusBadRequest, fmt.Sprintf("seconds=%.20q: want more than 0 and at most %v",
				seconds, maxProfileTime.Seconds()))
			return
		}
	}
	// if not supported, the server's deadline applies
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(2 * maxProfileTime))
	if err := pprof.StartCPUProfile(w); err != nil {
		fail(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	defer pprof.StopCPUProfile()
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(n*float64(time.Second)))
	defer cancel()
	<-ctx.Done()
}
