package podstore

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
)

// By is who hands over pods.
type By int

// Those who may: root, and members of the socket's group, whose word counts for less.
const (
	ByMember By = iota
	ByRoot
)

// memory is how much of it the objects of one may take, in bytes.
func (by By) memory() int {
	if by == ByRoot {
		return MaxMemory
	}
	return maxMembers
}

// layer are objects by UID.
type layer = map[string]*entry

// layers are what clients have handed over. They are never changed. What both say of a pod in the
// same words is one entry.
type layers struct{ root, members layer }

// of is what one has put.
func (l *layers) of(by By) *layer {
	if by == ByRoot {
		return &l.root
	}
	return &l.members
}

// all are both, root's first.
func (l *layers) all() []layer { return []layer{l.root, l.members} }

// same is the entry that a new one equals; nil: there is none. Of large objects that takes
// milliseconds.
func (l *layers) same(e *entry) *entry {
	for _, layer := range l.all() {
		if old := layer[string(e.object.UID)]; old != nil && reflect.DeepEqual(old.object, e.object) {
			return old
		}
	}
	return nil
}

// with has a batch added to what one has put, or in the place of that; root's in the place of
// everybody's. changed: it has other entries.
func (l *layers) with(batch layer, replace bool, by By) (next layers, changed bool) {
	next = *l
	own, before := layer{}, *l.of(by)
	switch {
	case replace && by == ByRoot:
		next.members = nil
		changed = len(l.members) > 0 || len(batch) < len(before)
	case replace:
		changed = len(batch) < len(before) // some are gone
	default:
		maps.Copy(own, before)
	}
	for uid, e := range batch {
		changed = changed || before[uid] != e
		own[uid] = e
	}
	*next.of(by) = own
	return next, changed
}

// delete has no object of a pod, or none of a member's. It returns what Delete does.
func (l *layers) delete(uid string, by By) (next layers, err error) {
	next = *l
	switch {
	case l.members[uid] == nil && l.root[uid] == nil:
		return next, ErrUnknown
	case by == ByMember && l.members[uid] == nil:
		return next, ErrRoots
	}
	next.members = maps.Clone(l.members)
	delete(next.members, uid)
	if by == ByRoot {
		next.root = maps.Clone(l.root)
		delete(next.root, uid)
	}
	return next, nil
}

// heaviest are the UIDs of members' objects without which there are so many bytes less, or of all:
// those first that count for nothing, as root has one of the same pod, then the largest. pinned
// ones would be there all the same.
func (l *layers) heaviest(bytes int, pinned map[*entry]int) (uids []string) {
	for uid, e := range l.members {
		if l.root[uid] != e && pinned[e] == 0 {
			uids = append(uids, uid)
		}
	}
	counts := func(uid string) int {
		if l.root[uid] != nil {
			return 0
		}
		return 1
	}
	slices.SortFunc(uids, func(a, b string) int {
		return cmp.Or(cmp.Compare(counts(a), counts(b)), cmp.Compare(l.members[b].size,
			l.members[a].size), cmp.Compare(a, b))
	})
	for i, uid := range uids {
		if bytes <= 0 {
			return uids[:i]
		}
		bytes -= l.members[uid].size
	}
	return uids
}

// without has none of these objects of members'.
func (l *layers) without(uids []string) layers {
	next := layers{l.root, maps.Clone(l.members)}
	for _, uid := range uids {
		delete(next.members, uid)
	}
	return next
}

// memory is how much the objects of one take, and all together, in bytes.
func (l *layers) memory(by By) (own, all int) {
	for _, e := range *l.of(by) {
		own += e.size
	}
	for _, e := range l.root {
		all += e.size
	}
	for uid, e := range l.members {
		if l.root[uid] != e {
			all += e.size
		}
	}
	return own, all
}
