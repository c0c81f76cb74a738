package config

import (
	"fmt"
	"reflect"
	"slices"
)

// Change is the result of a reload.
type Change struct {
	Loaded    *Loaded  // the new configuration, with the old values of start fields
	Now       []string // fields that change immediately
	NextStart []string // fields that change at the next start
	Warnings  []string // new ones
}

// Reloaded compares the configuration in effect, l, with next, read from the files now. The result
// keeps the start fields of l.
func (l *Loaded) Reloaded(next *Loaded) Change {
	config, loaded := *next.Config, *next
	loaded.Config = &config
	had, has := reflect.ValueOf(l.Config).Elem(), reflect.ValueOf(&config).Elem()
	c := Change{Loaded: &loaded}
	for i := range has.NumField() {
		f := has.Type().Field(i)
		name := f.Tag.Get("yaml")
		if name == "-" || sameValue(had.Field(i), has.Field(i)) {
			continue
		}
		if f.Tag.Get("start") == "" {
			c.Now = append(c.Now, name)
			continue
		}
		// The socket that answers now may differ without a change of a file.
		if name != endpointField || !l.endpointUnset() || !next.endpointUnset() {
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

// endpointUnset reports that no layer names the runtime's socket.
func (l *Loaded) endpointUnset() bool {
	o := l.origin(endpointField)
	return o.Source == SourceFound || o.Source == SourceDefault || l.endpointCleared
}

// sameValue reports whether two fields have the same meaning. An empty mapping or list equals an absent
// one.
func sameValue(x, y reflect.Value) bool {
	switch x.Kind() {
	case reflect.Map, reflect.Slice:
		if x.Len() == 0 && y.Len() == 0 {
			return true
		}
	}
	return reflect.DeepEqual(x.Interface(), y.Interface())
}

// CheckComplete returns why next must not replace l: a file or a kubelet is missing at the moment, which
// is no change of policy. It returns nil if next is complete.
func (l *Loaded) CheckComplete(next *Loaded) error {
	switch {
	case l.ownPath() != "" && next.ownPath() == "":
		return fmt.Errorf("config %s is missing: its previous content stays in effect until the next start",
			l.ownPath())
	case l.Kubelet && !next.Kubelet && len(next.Warnings) > 0:
		return fmt.Errorf("the previous configuration of the node's kubelet stays in effect: %s",
			next.Warnings[len(next.Warnings)-1])
	case l.Kubelet && !next.Kubelet:
		return ErrNoKubelet
	}
	return nil
}

// ownPath returns the path of the file that is not the kubelet's; empty: none.
func (l *Loaded) ownPath() string {
	if l.Kubelet && l.Kind == KindKubelet {
		return ""
	}
	return l.Path
}
