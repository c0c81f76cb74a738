package podstore

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
)

// Role is the role of a client.
type Role int

// The roles. Root overrides members of the socket's group.
const (
	ByMember Role = iota
	ByRoot
)

// memory returns the limit for the objects of a role, in bytes.
func (by Role) memory() int {
	if by == ByRoot {
		return MaxMemory
	}
	return maxMembers
}

// layer holds objects by UID.
type layer = map[string]*entry

// layers are the objects of clients by role. They never change. Equal objects of both roles are one
// entry.
type layers struct{ root, members layer }

// of returns the layer of a role.
func (l *layers) of(by Role) *layer {
	if by == ByRoot {
		return &l.root
	}
	return &l.members
}

// all returns both layers, root's first.
func (l *layers) all() []layer { return []layer{l.root, l.members} }

// same returns the known entry that equals e; nil: none. For large objects it takes milliseconds.
func (l *layers) same(e *entry) *entry {
	for _, layer := range l.all() {
		if old := layer[string(e.object.UID)]; old != nil && reflect.DeepEqual(old.object, e.object) {
			return old
		}
	}
	return nil
}

// with returns the layers with a batch added to a role's layer, or replacing it; root's replaces
// both. changed: the entries differ.
func (l *layers) with(batch layer, replace bool, by Role) (next layers, changed bool) {
	next = *l
	own, before := layer{}, *l.of(by)
	switch {
	case replace && by == ByRoot:
		next.members = nil
		changed = len(l.members) > 0 || len(batch) < len(before)
	case replace:
		changed = len(batch) < len(before) // some are removed
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

// delete returns the layers without the objects of a pod that the role may delete. It returns the
// errors of Store.Delete.
func (l *layers) delete(uid string, by Role) (next layers, err error) {
	next = *l
	switch {
	case l.members[uid] == nil && l.root[uid] == nil:
		return next, ErrUnknown
	case by == ByMember && l.members[uid] == nil:
		return next, ErrOwnedByRoot
	}
	next.members = maps.Clone(l.members)
	delete(next.members, uid)
	if by == ByRoot {
		next.root = maps.Clone(l.root)
		delete(next.root, uid)
	}
	return next, nil
}

// victims returns the UIDs of members' objects to drop to free so many bytes, or all. Objects of
// pods that root has too come first, as they are not published, then the largest. Dropping pinned
// ones would free nothing.
func (l *layers) victims(bytes int, pinned map[*entry]int) (uids []string) {
	for uid, e := range l.members {
		if l.root[uid] != e && pinned[e] == 0 {
			uids = append(uids, uid)
		}
	}
	published := func(uid string) int {
		if l.root[uid] != nil {
			return 0
		}
		return 1
	}
	slices.SortFunc(uids, func(a, b string) int {
		return cmp.Or(cmp.Compare(published(a), published(b)), cmp.Compare(l.members[b].size,
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

// without returns the layers without these objects of members.
func (l *layers) without(uids []string) layers {
	next := layers{l.root, maps.Clone(l.members)}
	for _, uid := range uids {
		delete(next.members, uid)
	}
	return next
}

// memory returns the bytes of the objects of a role, and of both roles.
func (l *layers) memory(by Role) (own, all int) {
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
