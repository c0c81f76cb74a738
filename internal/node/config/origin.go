package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Source is a layer of a configuration. What a later one says counts.
type Source string

// The layers, in their order. SourceFound takes the place of the default.
const (
	SourceDefault     Source = "default"
	SourceFound       Source = "found" // the runtime's socket
	SourceKubelet     Source = "kubeletFile"
	SourceDropIn      Source = "dropIn" // over the kubelet's file
	SourceKubeletFlag Source = "kubeletFlag"
	SourceOwn         Source = "ownFile"
	SourceEnvironment Source = "environment"
	SourceFlag        Source = "flag"
)

// Origin is where a value comes from.
type Origin struct {
	Source Source `json:"source"`
	Where  string `json:"where,omitempty"` // FILE:LINE, a flag, a variable; empty for a default
}

// String is for people: "default", "/etc/jettison/config.yaml:4 (ownFile)".
func (o Origin) String() string {
	if o.Where == "" {
		return string(o.Source)
	}
	return o.Where + " (" + string(o.Source) + ")"
}

// Setting is a value that holds, and where it comes from. A mapping has one for each of its keys,
// or one for itself where it has none.
type Setting struct {
	Field []string // path of keys: "evictionHard", "memory.available"
	Value any      // string, bool, int32, float64, a list of strings, of taints, or an empty mapping
	Origin
}

// Name is the path of a setting as errors have it: "evictionHard: memory.available".
func (s *Setting) Name() string { return strings.Join(s.Field, ": ") }

// Settings are all values that hold, in the order of the fields.
func (l *Loaded) Settings() (out []Setting) {
	config := reflect.ValueOf(l.Config).Elem()
	for i := range config.NumField() {
		name := config.Type().Field(i).Tag.Get("yaml")
		if name == "-" {
			continue
		}
		switch v := config.Field(i).Interface().(type) {
		case map[string]string:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				out = append(out, l.setting(v[key], name, key))
			}
			if len(v) == 0 {
				out = append(out, l.setting(map[string]string{}, name))
			}
		case ContainerGC, Descheduling:
			of := config.Field(i)
			for j := range of.NumField() {
				out = append(out, l.setting(plain(of.Field(j)), name, of.Type().Field(j).Tag.Get("yaml")))
			}
		default:
			out = append(out, l.setting(plain(config.Field(i)), name))
		}
	}
	return out
}

func (l *Loaded) setting(value any, field ...string) Setting {
	return Setting{Field: field, Value: value, Origin: l.origin(field...)}
}

// plain is a value as YAML and JSON have it.
func plain(v reflect.Value) any {
	switch {
	case v.Type() == reflect.TypeFor[Duration]():
		return Duration(v.Int()).String()
	case v.Kind() == reflect.String:
		return v.String()
	case v.Kind() == reflect.Slice && v.Len() == 0:
		return []string{}
	}
	return v.Interface()
}

// origin is where a field's value comes from, or a key of it. The keys of a mapping are from
// different places where drop-ins were merged.
func (l *Loaded) origin(field ...string) Origin {
	if o, told := l.told[strings.Join(field, ": ")]; told {
		return o
	}
	if l.lines == nil {
		return Origin{Source: SourceDefault}
	}
	line, set := l.lines.lines[strings.Join(field, ": ")]
	// those may have keys that nobody has set
	byKey := field[0] == "evictionHard" || field[0] == "containerGC" || field[0] == "descheduling"
	if !set && len(field) > 1 && !byKey {
		line, set = l.lines.lines[field[0]]
	}
	if !set || line == 0 {
		return Origin{Source: SourceDefault}
	}
	switch source := l.lines.layer(line >> lineBits); source {
	case SourceKubeletFlag:
		return Origin{source, l.lines.flags[field[0]]}
	default:
		return Origin{source, place(l.lines.names, line)}
	}
}

// SetByOwn reports whether a file of our own says what a field is. It is strict: what does not fit
// there is for its owner to mend.
func (l *Loaded) SetByOwn(field ...string) bool {
	for ; len(field) > 0; field = field[:len(field)-1] {
		if o := l.origin(field...); o.Source != SourceDefault {
			return o.Source == SourceOwn
		}
	}
	return false
}

// tell says where a field comes from that no file sets.
func (l *Loaded) tell(field string, o Origin) {
	if l.told == nil {
		l.told = map[string]Origin{}
	}
	l.told[field] = o
}
