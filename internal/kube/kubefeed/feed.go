// Package kubefeed lists and watches objects of the Kubernetes API with a reflector and passes them
// on by type. Programs that use the API server import it; the agent does not link it.
//
//	feed.go    Feed: the store of a reflector
//	limit.go   ends requests that the API server should have ended
//	run.go     Run: lists and watches, and restarts after failures
//	silent.go  lists again if watches end without an event
package kubefeed

import (
	"fmt"
	"iter"

	"k8s.io/client-go/tools/cache"
)

// Feed passes objects of type T from a reflector to functions and keeps none. The reflector's
// goroutine calls all functions except the one that NewReducer returns. None may be nil.
type Feed[T any] struct {
	Texts ErrorTexts
	// Put is called with a new or changed object.
	Put func(T)
	// Drop is called with the last known state of a deleted object.
	Drop func(T)
	// List is called with all n objects. The sequence may be iterated more than once.
	List func(n int, all iter.Seq[T])
	// Activity is called before Put and Drop, and when only the resource version has changed.
	Activity func()
	// NewReducer returns a function that reduces the objects of one list while they are gathered, before
	// the call of List.
	NewReducer func() func(T) T
}

// ErrorTexts are the beginnings of errors about an object of another type; the type follows.
type ErrorTexts struct{ Put, Drop, List string }

// Add passes a new object to Put.
func (f *Feed[T]) Add(o any) error { return f.Update(o) }

// Update passes a changed object to Put.
func (f *Feed[T]) Update(o any) error {
	object, ok := o.(T)
	if !ok {
		return fmt.Errorf("%s %T", f.Texts.Put, o)
	}
	f.Activity()
	f.Put(object)
	return nil
}

// Delete passes a deleted object to Drop, also if its last state is unknown.
func (f *Feed[T]) Delete(o any) error {
	if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = unknown.Obj
	}
	object, ok := o.(T)
	if !ok {
		return fmt.Errorf("%s %T", f.Texts.Drop, o)
	}
	f.Activity()
	f.Drop(object)
	return nil
}

// Replace passes all objects to List.
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

// Resync does nothing: a Feed has no objects to compare.
func (f *Feed[T]) Resync() error { return nil }

// Bookmark calls Activity.
func (f *Feed[T]) Bookmark(string) error { f.Activity(); return nil }

// Transformer returns the function that reduces the objects of a streaming list while the reflector
// gathers them. Objects of other lists and watches are not passed to it.
func (f *Feed[T]) Transformer() cache.TransformFunc {
	cut := f.NewReducer()
	return func(o any) (any, error) {
		object, ok := o.(T)
		if !ok {
			return o, nil
		}
		return cut(object), nil
	}
}
