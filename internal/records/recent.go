package records

import (
	"slices"

	"jettison/api"
)

// recentSize bounds the records that are at hand for readers.
const recentSize = 32

// recent are the last records, in the order in which they came first. What was handed out is never written again.
type recent []*api.Record

// with are these and a record as it is now, which takes the place of what there was of its eviction.
func (r recent) with(now api.Record) recent {
	bound(&now) // which makes lists of its own
	out := slices.Clone(r)
	if at := slices.IndexFunc(out, func(x *api.Record) bool { return x.ID == now.ID }); at >= 0 {
		out[at] = &now
		return out
	}
	out = append(out, &now)
	return out[max(0, len(out)-recentSize):]
}
