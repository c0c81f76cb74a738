package endpoints

import (
	"net/http"
	"net/http/pprof"
	"strings"

	"jettison/api"
)

// profile is GET /debug/pprof/ and what is below it. net/http/pprof finds a profile by the path.
func profile(w http.ResponseWriter, r *http.Request) {
	switch strings.TrimPrefix(r.URL.Path, api.PathPprof) {
	case "cmdline":
		pprof.Cmdline(w, r)
	case "profile":
		pprof.Profile(w, r)
	case "symbol":
		pprof.Symbol(w, r)
	case "trace":
		pprof.Trace(w, r)
	default:
		pprof.Index(w, r)
	}
}
