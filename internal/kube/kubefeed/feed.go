// Package kubefeed follows objects of the Kubernetes API: a reflector lists them and watches, and
// hands them over by type. Programs that talk to the API use it; the agent does not link it.
//
//	feed.go  Feed: what a reflector fills
//	run.go   Run: list, watch, and begin again
package kubefeed

import (
	"fmt"
	"iter"

	"k8s.io/client-go/tools/cache"
)

// Feed hands over objects of type T as a reflector gets them. It keeps nothing. The functions are
// called from the reflector's goroutine, all but Cut's, and none may be nil.
type Feed[T any] struct {
	Texts Texts
	// Put is called with an object that is new, or another than before.
	Put func(T)
	// Drop is called with an object that was deleted: its last state, as far as that is known.
	Drop func(T)
	// List is called with all n objects that there are. They may be iterated over more than once.
	List func(n int, all iter.Seq[T])
	// Heard is called before Put and Drop, and where nothing but the resource version has changed.
	Heard func()
	// Cut returns the function that makes objects of one list small while they are gathered, before
	// List has them.
	Cut func() func(T) T
}

// Texts begin the errors of an object of another type, which follows.
type Texts struct{ Put, Drop, List string }

// Add takes an object that is new.
func (f *Feed[T]) Add(o any) error { return f.Update(o) }

// Update takes an object that is another than before.
func (f *Feed[T]) Update(o any) error {
	object, ok := o.(T)
	if !ok {
		return fmt.Errorf("%s %T", f.Texts.Put, o)
	}
	f.Heard()
	f.Put(object)
	return nil
}

// Delete takes an object that is no more, whether its last state was seen or not.
func (f *Feed[T]) Delete(o any) error {
	if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = unknown.Obj
	}
	object, ok := o.(T)
	if !ok {
		return fmt.Errorf("%s %T", f.Texts.Drop, o)
	}
	f.Heard()
	f.Drop(object)
	return nil
}

// Replace takes all objects that there are.
func (f *Feed[T]) Replace(list []any, _ string) error {
	for _, o := range list {
		if _, ok := o.(T); !ok {
			return fmt.Errorf("%s %T", f.Texts.List, o)
		}
	}
	f.List(len(list), func(yield func(T) bool) {
		for _, o := range list {
			if !yield(o.(T)) {
				return
			}
		}
	})
	return nil
}

// Resync does nothing: a Feed keeps nothing that could be compared.
func (f *Feed[T]) Resync() error { return nil }

// Bookmark notes that the watch was heard.
func (f *Feed[T]) Bookmark(string) error { f.Heard(); return nil }

// Transformer cuts objects that a list as a watch gathers before it hands them over. What a list or
// a watch hands over it does not touch.
func (f *Feed[T]) Transformer() cache.TransformFunc {
	cut := f.Cut()
	return func(o any) (any, error) {
		object, ok := o.(T)
		if !ok {
			return o, nil
		}
		return cut(object), nil
	}
}
