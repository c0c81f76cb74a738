package httpserver

import (
	"errors"
	"net/http"
)

// Answer is a ResponseWriter whose client is waited for: what is written at once is in memory until
// the client has taken it, and Hold counts that.
type Answer struct {
	http.ResponseWriter
	// Hold takes so many bytes from a budget until release is called. !ok: there is no room.
	Hold func(bytes int) (release func(), ok bool)
	// Refuse answers, in place of all that is written from then on, that there is no room.
	Refuse func(http.ResponseWriter)

	refused bool
}

var errNoRoom = errors.New("no room for the answer")

// Write writes all of p, or refuses where there is no room for it.
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

// Unwrap is for http.ResponseController.
func (a *Answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
