// Package tolerations bounds what the programs keep of the tolerations of pods: tenants may write
// tens of thousands.
//
//	tolerations.go  Kept
package tolerations

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// maxBytes limits the size of the tolerations that are kept of a pod.
const maxBytes = 2 << 10

// tolerationBytes is the size of a toleration without its texts.
const tolerationBytes = 72

// Kept returns the tolerations that decides selects, without those that an earlier one covers. ok
// is false if they are too large to keep.
func Kept(all []v1.Toleration, decides func(*v1.Toleration) bool,
	covers func(earlier, later *v1.Toleration) bool) (out []v1.Toleration, ok bool) {
	size := 0
	for i := range all {
		t := &all[i]
		if !decides(t) || slices.ContainsFunc(out, func(earlier v1.Toleration) bool {
			return covers(&earlier, t)
		}) {
			continue
		}
		if size += tolerationBytes + len(t.Key) + len(t.Value); size > maxBytes {
			return nil, false
		}
		out = append(out, *t)
	}
	return out, true
}
