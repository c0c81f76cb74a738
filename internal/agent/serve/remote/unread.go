package remote

import "net/http"

// maxUnread bounds the bytes of responses that clients have not read yet, in total; a single one
// may be larger. A response of up to freeAnswer is always allowed.
const (
	maxUnread  = 12 << 20
	freeAnswer = 16 << 10
)

// hold counts a response of so many bytes as unread until release. !ok: other unread responses
// already use the budget.
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

// refuse answers that the budget for unread responses is used.
func refuse(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	fail(w, http.StatusServiceUnavailable, "too many unread responses: try again")
}
