package httpserver

import (
	"errors"
	"net/http"
)

// Answer is a ResponseWriter that accounts for unread bytes: written bytes stay in memory until the
// client has read them, and Hold counts them.
type Answer struct {
	http.ResponseWriter
	// Hold reserves bytes of a budget until the caller calls release. !ok: the budget is used up.
	Hold func(bytes int) (release func(), ok bool)
	// Refuse sends an error in place of the rest of the response.
	Refuse func(http.ResponseWriter)

	refused bool
}

var errNoRoom = errors.New("memory budget for unread responses is used")

// Write writes all of p, or refuses it if Hold does.
func (a *Answer) Write(p []byte) (int, error) {
	if a.refused {
		return 0, errNoRoom
	}
	release, ok := a.Hold(len(p))
	if !ok {
		a.refused = true
		a.Refuse(a.ResponseWriter)
		return 0, errNoRoom
	}
	defer release()
	return a.ResponseWriter.Write(p)
}

// Unwrap returns the ResponseWriter, for http.ResponseController.
func (a *Answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
