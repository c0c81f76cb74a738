package spec

import (
	"regexp"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Parts of an image reference (github.com/distribution/reference, regexp.go).
const (
	label     = `(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])`
	host      = `(?:` + label + `(?:\.` + label + `)*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?`
	component = `[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*`
	digest    = `sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128}`
)

// reference matches an image reference, with its tag and digest.
var reference = regexp.MustCompile(`^(?:` + host + `/)?` + component + `(?:/` + component +
	`)*(?::([\w][\w.-]{0,127}))?(?:@(` + digest + `))?$`)

// imageID matches the ID of an image in the place of its name, which runtimes refuse.
var imageID = regexp.MustCompile(`^library/[a-f0-9]{64}$`)

// pullPolicy returns the default pull policy of an image: Always for the tag latest, also if it is
// implied, else IfNotPresent. An invalid reference has IfNotPresent, and the runtime reports it.
func pullPolicy(image string) v1.PullPolicy {
	if !strings.Contains(image, "/") { // the first part would be a host, such as a:5000
		image = "library/" + image
	}
	m := reference.FindStringSubmatch(image)
	if m != nil && !imageID.MatchString(image) && (m[1] == "latest" || m[1] == "" && m[2] == "") {
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}
