package nodes

import "slices"

// podGroup identifies the evictions or the marks of pods of a namespace. An admission webhook may
// delay the writes of one group and not those of the others.
type podGroup struct {
	namespace string
	marks     bool
}

// byNamespace holds pending writes to pods, in order within each namespace.
type byNamespace[T any] struct {
	of    map[string][]*T
	turns []string // namespaces with pending writes, in the order of their turns
	count int
	marks bool // the writes are marks
}

func (b *byNamespace[T]) add(namespace string, w *T) {
	if len(b.of[namespace]) == 0 {
		b.turns = append(b.turns, namespace)
	}
	b.of[namespace] = append(b.of[namespace], w)
	b.count++
}

// pop removes the first write of the first group that has a place, whose next turn comes after those
// of the others. It returns nil if no group has one.
func (b *byNamespace[T]) pop(hasPlace func(podGroup) bool) *T {
	i := slices.IndexFunc(b.turns, func(namespace string) bool {
		return hasPlace(podGroup{namespace, b.marks})
	})
	if i < 0 {
		return nil
	}
	namespace := b.turns[i]
	b.turns = slices.Delete(b.turns, i, i+1)
	all := b.of[namespace]
	w := pop(&all)
	b.count--
	if b.of[namespace] = all; len(all) > 0 {
		b.turns = append(b.turns, namespace)
	} else {
		delete(b.of, namespace)
	}
	return w
}
