package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Source is a layer of a configuration. Later layers override earlier ones.
type Source string

// The layers, in order. SourceFound replaces the default.
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

// Origin is the source of a value.
type Origin struct {
	Source Source `json:"source"`
	Where  string `json:"where,omitempty"` // FILE:LINE, a flag, a variable; empty for a default
}

// String returns the origin for people: "default", "/etc/jettison/config.yaml:4 (ownFile)".
func (o Origin) String() string {
	if o.Where == "" {
		return string(o.Source)
	}
	return o.Where + " (" + string(o.Source) + ")"
}

// Setting is a value in effect and its origin. A mapping has one Setting for each of its keys, or
// one for itself if it is empty.
type Setting struct {
	Field []string // path of keys: "evictionHard", "memory.available"
	Value any      // string, bool, int32, float64, a list of strings, of taints, or an empty mapping
	Origin
}

// Name returns the path of a setting as in errors: "evictionHard: memory.available".
func (s *Setting) Name() string { return strings.Join(s.Field, ": ") }

// Settings returns all values in effect, in the order of the fields.
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
				out = append(out, l.setting(plainValue(of.Field(j)), name, of.Type().Field(j).Tag.Get("yaml")))
			}
		default:
			out = append(out, l.setting(plainValue(config.Field(i)), name))
		}
	}
	return out
}

func (l *Loaded) setting(value any, field ...string) Setting {
	return Setting{Field: field, Value: value, Origin: l.origin(field...)}
}

// plainValue returns a value in the form of YAML and JSON.
func plainValue(v reflect.Value) any {
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

// origin returns the origin of a field's value, or of one of its keys. The keys of a mapping have
// different origins after a merge of drop-ins.
func (l *Loaded) origin(field ...string) Origin {
	if o, told := l.origins[strings.Join(field, ": ")]; told {
		return o
	}
	if l.lines == nil {
		return Origin{Source: SourceDefault}
	}
	line, set := l.lines.lines[strings.Join(field, ": ")]
	// these mappings may have default keys
	byKey := field[0] == "evictionHard" || field[0] == "containerGC" || field[0] == "descheduling"
	if !set && len(field) > 1 && !byKey {
		line, set = l.lines.lines[field[0]]
	}
	if !set || line == 0 {
		return Origin{Source: SourceDefault}
	}
	switch source := l.lines.sourceOf(line >> lineBits); source {
	case SourceKubeletFlag:
		return Origin{source, l.lines.flags[field[0]]}
	default:
		return Origin{source, place(l.lines.names, line)}
	}
}

// SetByOwn reports whether the agent's own file sets a field. An invalid value there is an error,
// because its owner can correct it.
func (l *Loaded) SetByOwn(field ...string) bool {
	for ; len(field) > 0; field = field[:len(field)-1] {
		if o := l.origin(field...); o.Source != SourceDefault {
			return o.Source == SourceOwn
		}
	}
	return false
}

// setOrigin sets the origin of a field that no file sets.
func (l *Loaded) setOrigin(field string, o Origin) {
	if l.origins == nil {
		l.origins = map[string]Origin{}
	}
	l.origins[field] = o
}
