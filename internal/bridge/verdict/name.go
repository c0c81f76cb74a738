package verdict

import (
	"strconv"
	"strings"
	"time"
)

// maxName is the longest name of an object (apimachinery pkg/util/validation
// DNS1123SubdomainMaxLength).
const maxName = 253

// eventName returns the name of an object's event. Equal events get equal names, so the API server
// rejects the second one. The parts are lower-cased; a long object name is cut at its end.
func eventName(object string, parts ...string) string {
	rest := "." + strings.ToLower(strings.Join(parts, "."))
	object = strings.TrimRight(object[:min(len(object), maxName-len(rest))], "-.")
	return object + rest
}

// timeBucket returns a name for the FindingInterval that contains at. Within it, one event per kind
// and object is sent.
func timeBucket(at time.Time) string {
	return strconv.FormatInt(at.Unix()/int64(FindingInterval/time.Second), 36)
}

// BeganAt returns when the eviction of a record began, to the second, from the start of its ID.
// !ok: the ID has no time.
func BeganAt(id string) (at time.Time, ok bool) {
	const layout = "20060102T150405"
	at, err := time.Parse(layout, id[:min(len(id), len(layout))])
	return at, err == nil
}
