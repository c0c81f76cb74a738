package remote

import "net/http"

// maxUnread bounds answers in bytes that clients have not taken yet, all together; one alone may
// have more. freeAnswer is what one may have whatever others do.
const (
	maxUnread  = 12 << 20
	freeAnswer = 16 << 10
)

// hold counts bytes of an answer among those that clients have not taken yet. !ok: others keep too
// much.
func (h *handler) hold(bytes int) (release func(), ok bool) {
	size := int64(bytes)
	all := h.unread.Add(size)
	release = func() { h.unread.Add(-size) }
	if size > freeAnswer && all > maxUnread && all != size {
		release()
		return nil, false
	}
	return release, true
}

// refuse answers that others keep too much.
func refuse(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	fail(w, http.StatusServiceUnavailable, "too much is being sent at the same time: try again")
}
