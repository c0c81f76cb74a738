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

// checker checks the YAML nodes of a policy.
type checker struct {
	*strict.Checker
	name string // file name for errors
}

// newChecker returns a checker for a policy file.
func newChecker(name string) *checker {
	s := &checker{Checker: &strict.Checker{Lines: strict.Lines{}, Known: known}, name: name}
	s.Special, s.Member = s.duration, s.member
	return s
}

// fault returns an error with the file name and the line.
func (s *checker) fault(line int, format string, args ...any) error {
	return fmt.Errorf("policy %s:%d: "+format, append([]any{s.name, max(line, 1)}, args...)...)
}

// faults returns all errors with their lines.
func (s *checker) faults() (out []error) {
	for _, e := range s.Errors {
		out = append(out, s.fault(e.Line, "%s", (&strict.FieldError{Field: e.Field, Err: e.Err}).Error()))
	}
	return out
}

var (
	durationType = reflect.TypeFor[metav1.Duration]()
	policyType   = reflect.TypeFor[deschedule.Policy]()
	configType   = reflect.TypeFor[deschedule.PluginConfig]()
	pluginsType  = reflect.TypeFor[deschedule.Plugins]()
)

// known returns the fields of a struct, except the arguments of a plugin: member checks them.
func known(t reflect.Type) map[string]reflect.Type {
	fields := strict.Fields(t)
	if t == configType {
		delete(fields, "args")
	}
	return fields
}

// member checks arguments. It accepts preEvictionFilter, which the README of the descheduler spells
// differently from its API, and a null for strategies, the field of v1alpha1.
func (s *checker) member(n, key, value *yaml.Node, t reflect.Type, path []string) bool {
	switch {
	case t == configType && key.Value == "args":
		s.args(n, value, path)
	case t == pluginsType && key.Value == "preEvictionFilter":
		s.Check(value, strict.Fields(t)["preevictionfilter"], path)
	case t == policyType && key.Value == "strategies" && value.Tag == "!!null":
	default:
		return false
	}
	return true
}

// args checks arguments against the type of the plugin named in the entry.
func (s *checker) args(entry, value *yaml.Node, path []string) {
	name, _ := scalar(entry, "name")
	if args := deschedule.NewArgs(name); args != nil {
		s.Check(value, reflect.TypeOf(args), path)
	} else if name == "" {
		s.Add(entry, path[:len(path)-1], "name is missing: the plugin for these args")
	} else {
		question := nearest.Question(name, slices.Values(deschedule.PluginNames()))
		s.Add(entry, path[:len(path)-1], "%s%s", deschedule.UnknownPlugin(name), question)
	}
}

// duration checks a metav1.Duration.
func (s *checker) duration(n *yaml.Node, t reflect.Type, path []string) bool {
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
