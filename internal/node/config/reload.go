package config

import (
	"fmt"
	"reflect"
	"slices"
)

// Change is what another configuration makes of the one that holds.
type Change struct {
	Loaded    *Loaded  // what holds then: the new one, but for fields that are read at the start
	Now       []string // fields that change at once
	NextStart []string // fields that are another at the next start, by what was read now
	Warnings  []string // that the one before did not have
}

// Reloaded is what becomes of the configuration that holds, where the files say next now. l has its
// fields of the start still, as each Loaded that comes of this has.
func (l *Loaded) Reloaded(next *Loaded) Change {
	config, loaded := *next.Config, *next
	loaded.Config = &config
	had, has := reflect.ValueOf(l.Config).Elem(), reflect.ValueOf(&config).Elem()
	c := Change{Loaded: &loaded}
	for i := range has.NumField() {
		f := has.Type().Field(i)
		name := f.Tag.Get("yaml")
		if name == "-" || alike(had.Field(i), has.Field(i)) {
			continue
		}
		if f.Tag.Get("start") == "" {
			c.Now = append(c.Now, name)
			continue
		}
		// Which of several sockets answers at the moment is no change of a file.
		if name != endpointField || !l.foundRuntime() || !next.foundRuntime() {
			c.NextStart = append(c.NextStart, name)
		}
		has.Field(i).Set(had.Field(i))
	}
	loaded.LogMaxBytes, loaded.EndpointFrom = l.LogMaxBytes, l.EndpointFrom
	for _, w := range next.Warnings {
		if !slices.Contains(l.Warnings, w) {
			c.Warnings = append(c.Warnings, w)
		}
	}
	return c
}

// foundRuntime: nobody says which runtime it is.
func (l *Loaded) foundRuntime() bool {
	o := l.origin(endpointField)
	return o.Source == SourceFound || o.Source == SourceDefault || l.unset
}

// alike reports whether two fields mean the same. A mapping or a list without anything is one that
// is not there.
func alike(x, y reflect.Value) bool {
	switch x.Kind() {
	case reflect.Map, reflect.Slice:
		if x.Len() == 0 && y.Len() == 0 {
			return true
		}
	}
	return reflect.DeepEqual(x.Interface(), y.Interface())
}

// LessThan says why another reading of the configuration is not what the files say but what can be
// read of them just now: a file that is gone, or a kubelet that is not there, is no policy. nil: it
// is whole.
func (l *Loaded) LessThan(next *Loaded) error {
	switch {
	case l.own() != "" && next.own() == "":
		return fmt.Errorf("config %s is not there any more: what it said holds until the next start",
			l.own())
	case l.Kubelet && !next.Kubelet && len(next.Warnings) > 0:
		return fmt.Errorf("what the node's kubelet went by holds still: %s",
			next.Warnings[len(next.Warnings)-1])
	case l.Kubelet && !next.Kubelet:
		return ErrNoKubelet
	}
	return nil
}

// own is the file that is not the kubelet's as it was found; empty: there is none.
func (l *Loaded) own() string {
	if l.Kubelet && l.Kind == KindKubelet {
		return ""
	}
	return l.Path
}
