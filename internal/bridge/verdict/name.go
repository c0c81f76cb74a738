package verdict

import (
	"strconv"
	"strings"
	"time"
)

// maxName is how long an object's name may be (apimachinery pkg/util/validation
// DNS1123SubdomainMaxLength).
const maxName = 253

// eventName is the name of an event of an object: the same for the same thing, so that a second one
// is refused by the API server. The parts are lower-cased; of a name that is too long the end is
// left out.
func eventName(object string, parts ...string) string {
	rest := "." + strings.ToLower(strings.Join(parts, "."))
	object = strings.TrimRight(object[:min(len(object), maxName-len(rest))], "-.")
	return object + rest
}

// bucket is the name of a stretch of time: of all findings of one kind and object within it one is
// sent.
func timeBucket(at time.Time) string {
	return strconv.FormatInt(at.Unix()/int64(FindingInterval/time.Second), 36)
}

// BeganAt is when the eviction of a record began, to the second, by the record's ID, which begins
// with it. !ok: this does not.
func BeganAt(id string) (at time.Time, ok bool) {
	const layout = "20060102T150405"
	at, err := time.Parse(layout, id[:min(len(id), len(layout))])
	return at, err == nil
}
