package verdict

import (
	"strconv"
	"strings"
	"time"
)

// maxName is how long an object's name may be (apimachinery pkg/util/validation DNS1123SubdomainMaxLength).
const maxName = 253

// eventName is the name of an event of an object: the same for the same thing, so that a second one is refused by the API server. The parts
// are lower-cased; of a name that is too long the end is left out.
func eventName(object string, parts ...string) string {
	rest := "." + strings.ToLower(strings.Join(parts, "."))
	object = strings.TrimRight(object[:min(len(object), maxName-len(rest))], "-.")
	return object + rest
}

// bucket is the name of a stretch of time: of all findings of one kind and object within it one is sent.
func bucket(at time.Time) string {
	return strconv.FormatInt(at.Unix()/int64(FindingsEvery/time.Second), 36)
}
