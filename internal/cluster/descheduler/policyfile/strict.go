package policyfile

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/cluster/deschedule"
	"jettison/internal/base/nearest"
	"jettison/internal/base/strict"
)

// checked is a policy's YAML with the check of it.
type checked struct {
	*strict.Checker
	name string // the file's
}

// newChecked returns the check of a policy of a name.
func newChecked(name string) *checked {
	s := &checked{Checker: &strict.Checker{Lines: strict.Lines{}, Known: known}, name: name}
	s.Special, s.Member = s.duration, s.member
	return s
}

// fault returns the error of a line.
func (s *checked) fault(line int, format string, args ...any) error {
	return fmt.Errorf("policy %s:%d: "+format, append([]any{s.name, max(line, 1)}, args...)...)
}

// faults returns all that is wrong, each with its line.
func (s *checked) faults() (out []error) {
	for _, e := range s.Errors {
		out = append(out, s.fault(e.Line, "%s", (&strict.FieldError{Field: e.Field, Err: e.Err}).Error()))
	}
	return out
}

var (
	durationType = reflect.TypeFor[metav1.Duration]()
	configType   = reflect.TypeFor[deschedule.PluginConfig]()
	pluginsType  = reflect.TypeFor[deschedule.Plugins]()
)

// known returns the fields of a struct. The arguments of a plugin are of the plugin's own type:
// member checks them.
func known(t reflect.Type) map[string]reflect.Type {
	fields := strict.Fields(t)
	if t == configType {
		delete(fields, "args")
	}
	return fields
}

// member checks arguments, and the extension point that the descheduler's own README spells
// otherwise than its API.
func (s *checked) member(n, key, value *yaml.Node, t reflect.Type, path []string) bool {
	switch {
	case t == configType && key.Value == "args":
		s.args(n, value, path)
	case t == pluginsType && key.Value == "preEvictionFilter":
		s.Check(value, strict.Fields(t)["preevictionfilter"], path)
	default:
		return false
	}
	return true
}

// args are of the plugin that the entry names.
func (s *checked) args(entry, value *yaml.Node, path []string) {
	name, _ := scalar(entry, "name")
	if args := deschedule.NewArgs(name); args != nil {
		s.Check(value, reflect.TypeOf(args), path)
	} else if name == "" {
		s.Add(entry, path[:len(path)-1], "name is missing: the plugin that these args are of")
	} else {
		question := nearest.Question(name, slices.Values(deschedule.Names()))
		s.Add(entry, path[:len(path)-1], "there is no plugin %q%s", name, question)
	}
}

// duration checks a duration of the API.
func (s *checked) duration(n *yaml.Node, t reflect.Type, path []string) bool {
	if t != durationType {
		return false
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		if _, err := time.ParseDuration(n.Value); err == nil {
			return true
		}
	}
	s.Add(n, path, "%q: want a duration, as in \"10m\"", n.Value)
	return true
}
