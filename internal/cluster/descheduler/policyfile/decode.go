package policyfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"jettison/cluster/deschedule"
	"jettison/internal/base/strict"
)

// oldVersion is what Migrate reads.
const oldVersion = "descheduler/v1alpha1"

// Decode reads a policy, sets its defaults and checks it. Errors name the file by the name given,
// the line and what is wrong; several are joined by line ends.
func Decode(text []byte, name string) (*deschedule.Policy, error) {
	root, err := document(text, name)
	if err != nil {
		return nil, err
	}
	s := newChecked(name)
	version, line := scalar(root, "apiVersion")
	switch version {
	case deschedule.APIVersion:
	case oldVersion:
		return nil, s.fault(line,
			"apiVersion %s is read no more: \"jettison-cluster deschedule migrate\" turns it into %s",
			oldVersion,
			deschedule.APIVersion)
	default:
		return nil, s.fault(line, "apiVersion %q: want %s", version, deschedule.APIVersion)
	}
	if kind, line := scalar(root, "kind"); kind != deschedule.Kind {
		return nil, s.fault(line, "kind %q: want %s", kind, deschedule.Kind)
	}
	s.Check(root, reflect.TypeFor[deschedule.Policy](), nil)
	if faults := s.faults(); len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	policy := &deschedule.Policy{}
	if err := into(root, policy); err != nil {
		return nil, s.fault(root.Line, "%v", err)
	}
	if err := typeArgs(policy); err != nil {
		return nil, s.fault(root.Line, "%v", err)
	}
	if err := policy.Complete(); err != nil {
		return nil, s.locate(err)
	}
	return policy, nil
}

// typeArgs turns arguments, which the check has seen, into their types. Those of a plugin that
// there is not stay: Complete says so.
func typeArgs(p *deschedule.Policy) error {
	for i := range p.Profiles {
		for j := range p.Profiles[i].PluginConfig {
			c := &p.Profiles[i].PluginConfig[j]
			args := deschedule.NewArgs(c.Name)
			if c.Args == nil || args == nil {
				continue
			}
			text, err := json.Marshal(c.Args)
			if err == nil {
				err = json.Unmarshal(text, args)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
			c.Args = args
		}
	}
	return nil
}

// locate gives faults of a whole policy their lines.
func (s *checked) locate(err error) error {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	out := make([]error, 0, len(all))
	for _, one := range all {
		line := 1
		var f *deschedule.Fault
		if errors.As(one, &f) {
			line = s.Lines.Nearest(f.Path, ".")
		}
		out = append(out, s.fault(line, "%v", one))
	}
	return errors.Join(out...)
}

// document is the one document of a file.
func document(text []byte, name string) (*yaml.Node, error) {
	file := strict.Document{APIVersion: deschedule.APIVersion, Kind: deschedule.Kind,
		SecondOnly: true, FurtherFirst: true}
	root, err := file.Root(text)
	var syntax *strict.SyntaxError
	var wrong *strict.FieldError
	switch {
	case errors.As(err, &syntax):
		return nil, fmt.Errorf("policy %s: not YAML: %s", name, strings.TrimPrefix(syntax.Err.Error(),
			"yaml: "))
	case errors.As(err, &wrong):
		return nil, newChecked(name).fault(wrong.Line, "%w", wrong.Err)
	}
	return root, err
}

// scalar is the text of a field at the top, and its line.
func scalar(root *yaml.Node, field string) (string, int) {
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == field {
			return root.Content[i+1].Value, root.Content[i].Line
		}
	}
	return "", root.Line
}

// into fills a value of the API, by way of the JSON that it is read from elsewhere.
func into(n *yaml.Node, v any) error {
	var plain any
	if err := n.Decode(&plain); err != nil {
		return err
	}
	text, err := json.Marshal(plain)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}
