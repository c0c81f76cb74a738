package socket

import (
	"errors"
	"net/http"
)

// held is the way to a member of what is only read. What is written at once is in memory until the client has taken it, so it comes out of
// the budget of all that clients have the agent keep, as other answers to members do.
type held struct {
	http.ResponseWriter
	h       *handler
	refused bool
}

var errNoRoom = errors.New("no room for the answer")

// Write writes all of it, or where there is no room for it answers that instead.
func (w *held) Write(p []byte) (int, error) {
	if w.refused {
		return 0, errNoRoom
	}
	release, ok := w.h.pods.Hold(len(p))
	if !ok {
		w.refused = true
		w.h.fail(w.ResponseWriter, errBusy)
		return 0, errNoRoom
	}
	defer release()
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *held) Unwrap() http.ResponseWriter { return w.ResponseWriter }
