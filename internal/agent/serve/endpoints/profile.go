package endpoints

import (
	"context"
	"fmt"
	"net/http"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"jettison/api"
)

// mostProfiled is how long a profile of CPU may be.
const mostProfiled = time.Minute

// profile is GET /debug/pprof/ and what is below it, as go tool pprof asks for it. net/http/pprof
// would link the tracer and more.
func profile(w http.ResponseWriter, r *http.Request) {
	values, ok := parameters(w, r, "seconds", "debug")
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
		fail(w, http.StatusNotFound, fmt.Sprintf("no such profile: %.60q: %s lists them", name,
			api.PathPprof))
	default:
		debug, _ := strconv.Atoi(values.Get("debug")) // 0: the form that go tool pprof reads
		w.Header().Set("Content-Type", "application/octet-stream")
		_ = p.WriteTo(w, debug) // the client is gone
	}
}

func profileCPU(w http.ResponseWriter, r *http.Request, seconds string) {
	n := 30.0
	if seconds != "" {
		var err error
		if n, err = strconv.ParseFloat(seconds, 64); err != nil ||
			!(n > 0 && n <= mostProfiled.Seconds()) {
			fail(w, http.StatusBadRequest, fmt.Sprintf("seconds=%.20q: want more than 0 and at most %v",
				seconds, mostProfiled.Seconds()))
			return
		}
	}
	// not supported: the server's own holds
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(2 * mostProfiled))
	if err := pprof.StartCPUProfile(w); err != nil {
		fail(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	defer pprof.StopCPUProfile()
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(n*float64(time.Second)))
	defer cancel()
	<-ctx.Done()
}
