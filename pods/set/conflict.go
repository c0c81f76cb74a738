package set

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"jettison/pods/spec"
)

// choose returns the object that is used of all files that have it; nil: none of them. before is
// the one that was used so far. Several files must not have it: none of them takes over from the
// one before. Only if all are the same there is nothing to choose.
func (s *Set) choose(all []*Object, before *Object) *Object {
	if len(all) == 1 {
		return all[0]
	}
	files, keys := describe(all)
	s.problem(Problem{Files: files, Err: fmt.Errorf("%s is in each of these files: remove it from all "+
		"but one", keys), Kept: before != nil})
	same := !slices.ContainsFunc(all, func(o *Object) bool {
		return o.Hash != all[0].Hash || o.Pod != nil && o.Pod.UID != all[0].Pod.UID
	})
	switch {
	case before != nil:
		return &Object{Object: before.Object, File: before.File}
	case same:
		return all[0]
	}
	s.Complete = false
	return nil
}

// separateUIDs removes pods with the UID of another pod. The one that had it before stays; without
// one, none does.
func (s *Set) separateUIDs(prev *Set) {
	byUID := map[types.UID][]*Object{}
	for _, o := range s.Objects {
		if o.Bound != nil {
			byUID[o.Bound.UID] = append(byUID[o.Bound.UID], o)
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(byUID)) {
		all := byUID[uid]
		if len(all) == 1 {
			continue
		}
		files, keys := describe(all)
		had := func(key spec.Key) bool {
			before := prev.Objects[key]
			return before != nil && before.Bound.UID == uid
		}
		kept := slices.ContainsFunc(all, func(o *Object) bool { return had(o.Key) })
		s.problem(Problem{Files: files, Kept: kept, Err: fmt.Errorf("%s have the same UID %s: give each "+
			"its own metadata.uid, or none", keys, uid)})
		for _, o := range all {
			if had(o.Key) {
				continue
			}
			s.Complete = false
			delete(s.Objects, o.Key)
			if before := prev.Objects[o.Key]; before != nil {
				s.Objects[o.Key] = before // with its own UID
			}
		}
	}
}

// Pods returns the pods of the set, sorted by namespace and name.
func (s *Set) Pods() []*Object {
	pods := slices.DeleteFunc(slices.Collect(maps.Values(s.Objects)), func(o *Object) bool {
		return o.Bound == nil
	})
	slices.SortFunc(pods, func(a, b *Object) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return pods
}
