package eviction

import (
	"reflect"
	"slices"
	"time"
)

// shrinkMost bounds the runs that shrink one timeline.
const shrinkMost = 4000

// shrink makes a timeline as small as possible that breaks the same rule: it removes parts, then
// makes the rest harmless, or smaller.
func shrink(tl *timeline, broken func(*timeline) bool) *timeline {
	best, runs := clone(tl), 0
	try := func(change func(*timeline)) bool {
		if runs++; runs > shrinkMost {
			return false
		}
		smaller := clone(best)
		if change(smaller); reflect.DeepEqual(smaller, best) || !broken(smaller) {
			return false
		}
		best = smaller
		return true
	}
	for changed := true; changed; {
		changed = false
		for i := len(best.Events) - 1; i >= 0; i-- {
			changed = try(func(t *timeline) { t.Events = slices.Delete(t.Events, i, i+1) }) || changed
		}
		for i := len(best.Pods) - 1; i >= 0; i-- {
			changed = try(func(t *timeline) { t.Pods = slices.Delete(t.Pods, i, i+1) }) || changed
		}
		for i := len(best.Settings) - 1; i >= 0; i-- {
			changed = try(func(t *timeline) { t.Settings = slices.Delete(t.Settings, i, i+1) }) || changed
		}
		changed = shrinkFields(func(t *timeline) reflect.Value { return reflect.ValueOf(&t.Node).Elem() }, best.Node, try) || changed
		for i := range best.Pods {
			changed = shrinkFields(func(t *timeline) reflect.Value { return reflect.ValueOf(&t.Pods[i]).Elem() }, best.Pods[i], try) || changed
		}
		for i := range best.Events {
			changed = shrinkFields(func(t *timeline) reflect.Value { return reflect.ValueOf(&t.Events[i]).Elem() }, best.Events[i], try) || changed
		}
	}
	return best
}

// kept lists the fields that do not change: a node that is short from the start shows nothing.
var kept = []string{"Name", "What", "Memory", "Allocatable", "Swap", "Tasks", "Disk"}

// shrinkFields sets each field to zero, or rounds or halves it.
func shrinkFields(of func(*timeline) reflect.Value, now any, try func(func(*timeline)) bool) (smaller bool) {
	v := reflect.ValueOf(now)
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; v.Field(i).IsZero() || slices.Contains(kept, name) {
			continue
		}
		if try(func(t *timeline) { of(t).Field(i).SetZero() }) {
			smaller = true
			continue
		}
		if !v.Field(i).CanInt() {
			continue
		}
		n := v.Field(i).Int()
		unit := int64(100)
		if v.Field(i).Type() == reflect.TypeFor[time.Duration]() {
			unit = int64(time.Second)
		}
		for _, less := range []int64{n / 2 / unit * unit, n / unit * unit, n * 10 / unit * unit / 10} {
			if less != n && less != 0 && try(func(t *timeline) { of(t).Field(i).SetInt(less) }) {
				smaller = true
				break
			}
		}
	}
	return smaller
}

func clone(tl *timeline) *timeline {
	out := *tl
	out.Settings, out.Pods, out.Events = slices.Clone(tl.Settings), slices.Clone(tl.Pods), slices.Clone(tl.Events)
	return &out
}
