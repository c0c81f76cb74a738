package remote

import (
	"errors"
	"net/http"
	"sync/atomic"
)

// maxUnread bounds answers in bytes that clients have not taken yet, all together; one alone may have more. freeAnswer is what one may have
// whatever others do.
const (
	maxUnread  = 12 << 20
	freeAnswer = 16 << 10
)

var errNoRoom = errors.New("no room for the answer")

// answer is the way to a client. What is written at once is in memory until the client has taken it.
type answer struct {
	http.ResponseWriter
	unread  *atomic.Int64 // of all clients
	refused bool
}

// Write writes all of it, or where others keep too much answers that instead.
func (w *answer) Write(p []byte) (int, error) {
	if w.refused {
		return 0, errNoRoom
	}
	size := int64(len(p))
	all := w.unread.Add(size)
	defer w.unread.Add(-size)
	if size > freeAnswer && all > maxUnread && all != size {
		w.refused = true
		w.Header().Set("Retry-After", "1")
		fail(w.ResponseWriter, http.StatusServiceUnavailable, "too much is being sent at the same time: try again")
		return 0, errNoRoom
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *answer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
